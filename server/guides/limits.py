"""How much a guide may ask for. The numbers come from timing OpenVINO GenAI 2026.4.1 with a vocabulary of 49,152 on one core.

The engine compiles a grammar inside a step, so what a guide costs there, every other sequence waits for, once per distinct guide:
an element of a grammar costs some 0.05 ms, and 0.1 ms in a chain of optional ones; a place where most tokens are possible
(`WIDE` characters or more) 1 to 6 ms, and 5 to 40 KiB for as long as the engine lives. All limits together keep that below a second.
"""

from __future__ import annotations

MAX_BYTES = 64 * 1024
MAX_DEPTH = 64
MAX_COUNT = 1000
"""The largest bound of a repetition: minItems, maxLength, {m,n}."""
MAX_ELEMENTS = 4000
"""Elements of the text that is parsed, and of the grammar that results."""
MAX_RULES = 1000
WIDE = 24
MAX_WIDE = 128
"""Wide places in a grammar, those that a bounded repetition unrolls included."""
MAX_SCHEMAS = 1000
MAX_ONE_OF = 32
MAX_DIGITS = 15
"""Of a number's whole part, and of its fraction: what a double holds exactly."""
