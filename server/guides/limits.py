"""How much a guide may ask for. The numbers come from timing OpenVINO GenAI 2026.4.1 with a vocabulary of 49,152.

The engine compiles a grammar inside a step, so what a guide costs there, every other sequence waits for, once per distinct guide. It is the
places that cost: one where any character may come takes some 8 ms of CPU time and 4 to 10 KiB while the engine lives, one for a letter a
quarter of that, one for a digit next to nothing. A rule or an element takes 0.05 ms, and 0.3 ms in a chain of optional ones. All limits
together keep a guide below some two seconds of CPU time, on two threads; a vocabulary of 151,936 doubles that.
"""

from __future__ import annotations

from server.guides.characters import Ranges, size

MAX_BYTES = 64 * 1024
MAX_DEPTH = 64
MAX_COUNT = 1000
"""The largest bound of a repetition: minItems, maxLength, {m,n}."""
MAX_ELEMENTS = 4000
"""Of the text that is parsed, and of the grammar that results."""
MAX_RULES = 1000
ANY = 4
"""The weight of a place where any character may come; a letter's is 1."""
MAX_WEIGHT = 100 * ANY
MAX_OVERLAP = 1500
"""The sum, over all rules, of the pairs of places of weight that a text may begin with."""
MAX_WORK = 100_000
"""Places looked at to find the texts that meet several conditions at once, some 2 µs each."""
MAX_SCHEMAS = 500
MAX_ONE_OF = 32
MAX_DIGITS = 15
"""Of a number's whole part, and of its fraction: what a double holds exactly."""


def weigh(ranges: Ranges) -> int:
    """The weight of a place for a character of these."""
    count = size(ranges)
    return ANY if count >= 128 else int(count >= 12)
