r"""Grammars in xgrammar's EBNF: what its users write, but for macros and lookahead, which are its own.

    root ::= "{" pair ("," pair)* "}"   # a comment
    pair ::= [a-z]{1,8} ":" ("yes" | "no")?

Literals and classes take the escapes of `syntax`; a class may also hold `\d` and its kin. Rule names never reach the engine.

One thing cannot be found out beforehand: recursion that reads a text in ever more ways, as `s ::= [a-z] s s | [a-z]` does. It slows each
step down, for every sequence, by some 5 ms per token of the answer so far; only the answer's length bounds it.
"""

from __future__ import annotations

import re

from server.guides.characters import Shorthand
from server.guides.cursor import Cursor
from server.guides.grammar import EMPTY, ROOT, Literal, Node, Reference, Rule, choice, sequence
from server.guides.limits import MAX_RULES
from server.guides.refusal import refuse, show_name
from server.guides.syntax import check_character, read_class, read_escape, read_quantified

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*+")
_NAME = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*+")
_RULE = re.compile(rf"({_NAME.pattern}){_BLANK.pattern}::=")
_PLAIN = re.compile(r'[^"\\\r\n\0]+')


def parse_ebnf(text: str) -> dict[str, Rule]:
    """The grammar's rules by name; each reference has its rule, and one rule is `root`."""
    parser = _Parser(text)
    rules = parser.read_rules()
    if ROOT not in rules:
        raise refuse("grammar", f'no rule is named "{ROOT}"')
    for name, place in parser.references.items():
        if name not in rules:
            raise refuse(place, f'there is no rule "{show_name(name)}"')
    return rules


class _Parser:
    """Reads a grammar by recursive descent; one method per construct."""

    def __init__(self, text: str) -> None:
        self._cursor = Cursor(text)
        self.references: dict[str, str] = {}
        """Where each rule is first referred to."""

    def read_rules(self) -> dict[str, Rule]:
        rules: dict[str, Rule] = {}
        self._skip_blanks()
        while not self._cursor.done:
            place = self._cursor.locate(self._cursor.at)
            found = self._cursor.match(_RULE)
            if not found:
                raise self._cursor.refuse('expected a rule, "name ::= ..."')
            if found[1] in rules or len(rules) == MAX_RULES:
                raise refuse(place, f'a second rule "{show_name(found[1])}"' if found[1] in rules else f"more than {MAX_RULES} rules")
            rules[found[1]] = Rule(self._read_choice(), place)
        return rules

    def _read_choice(self) -> Node:
        options = [self._read_sequence()]
        while self._cursor.take("|"):
            options.append(self._read_sequence())
        return choice(options)

    def _read_sequence(self) -> Node:
        """At least one element; what ends it is left to be read."""
        parts: list[Node] = []
        self._skip_blanks()
        while not parts or not (self._cursor.done or self._cursor.peek() in "|)" or _RULE.match(self._cursor.text, self._cursor.at)):
            self._cursor.spend()
            parts.append(read_quantified(self._cursor, self._read_element()))
            self._skip_blanks()
        return sequence(parts)

    def _read_element(self) -> Node:
        cursor = self._cursor
        if cursor.take('"'):
            return Literal(self._read_literal())
        if cursor.take("["):
            return read_class(cursor)
        if cursor.take("("):
            return self._read_group()
        if found := cursor.match(_NAME):
            if found[0] not in self.references:
                self.references[found[0]] = cursor.locate(found.start())
            return Reference(found[0])
        raise cursor.refuse('expected "...", [...], (...) or the name of a rule')

    def _read_group(self) -> Node:
        self._cursor.open_group()
        self._skip_blanks()
        node = EMPTY if self._cursor.peek() == ")" else self._read_choice()
        self._cursor.close_group()
        return node

    def _read_literal(self) -> str:
        cursor = self._cursor
        pieces: list[str] = []
        while not cursor.take('"'):
            if found := cursor.match(_PLAIN):
                pieces.append(found[0])
            elif cursor.take("\\"):
                cursor.spend()
                code = read_escape(cursor)
                if isinstance(code, Shorthand):
                    raise cursor.refuse("a set of characters can stand only in a class")
                pieces.append(check_character(cursor, code))
            else:
                raise cursor.refuse("expected '\"'")
        return "".join(pieces)

    def _skip_blanks(self) -> None:
        self._cursor.match(_BLANK)
