"""What Triton loads. Everything is in server/triton_model.py."""

from server.triton_model import TidegateModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
