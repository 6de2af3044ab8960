"""JSON read strictly: what Python's parser lets pass and others do not is refused, in words that hold nothing of the text.

Refused are NaN and infinities, numbers too large for a float, names given twice in one object, nesting that exhausts the parser, text that
is not UTF-8, and more structure than an honest request has: what a text costs is its values, not its bytes. Halves of UTF-16 pairs, which
clients that cut texts send, become U+FFFD as in every other place of this router.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from router.errors import protocol_violated

_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


class _Refused(ValueError):
    """Holds words of ours."""


def parse_json(data: bytes, name: str = "body", most_structure: int = 96 * 1024) -> Any:
    """The value of a JSON text. Raises CallerError BODY_UNREADABLE, or by the other name that it goes by.

    `most_structure`: bytes that it may have outside of its strings, not counting white space, and two for each string.
    """
    if len(data) > most_structure and _has_more_structure(data, most_structure):
        text = f"the {name} holds too many values; at most {most_structure} bytes of it may stand outside of texts"
        raise protocol_violated(f"{name.upper()}_UNREADABLE", name, text)
    try:
        text = data.decode()
        return _DECODER.decode(_mend(text))
    except UnicodeDecodeError:
        fault = "is not UTF-8"
    except RecursionError:
        fault = "is nested too deeply"
    except _Refused as error:
        fault = str(error)
    except json.JSONDecodeError as error:
        fault = f"is not JSON: {error.msg} at character {error.pos}"
    except ValueError:
        fault = "holds a number of too many digits"
    raise protocol_violated(f"{name.upper()}_UNREADABLE", name, f"the {name} {fault}")


def _has_more_structure(data: bytes, most: int) -> bool:
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in data else data
    if plain.count(b'"') > most:
        return True
    outside = b'""'.join(plain.split(b'"')[::2])
    return len(outside) > most and len(outside.translate(None, b" \t\r\n")) > most


def _mend(text: str) -> str:
    """Cheap where there is nothing to mend: few texts hold such an escape at all."""
    if r"\u" not in text or not _HALF_PAIR.search(text):
        return text
    return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _Refused("names a field twice in one object")
    return made


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused("holds a number that is too large")
    return number


def _refuse_constant(_: str) -> NoReturn:
    raise _Refused("holds NaN or Infinity, which JSON does not have")


_DECODER = json.JSONDecoder(object_pairs_hook=_make_object, parse_float=_parse_float, parse_constant=_refuse_constant)
