"""The bench that contract and fault tests use: a router, and behind it the real Triton model in process, driven by scripts."""
