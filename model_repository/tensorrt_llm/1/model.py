"""What Triton loads. Everything is in server/triton_model.py.

A stub whose Triton was killed may wait for ever for its engine's thread, and the launcher, which would end it, may have gone too.
"""

import os

from server.die_with_parent import die_with
from server.triton_model import TidegateModel as TritonPythonModel

__all__ = ["TritonPythonModel"]

die_with(os.getppid())
