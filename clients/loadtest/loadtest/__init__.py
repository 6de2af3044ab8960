"""Load tests and benchmarks.

A benchmark is a command that prints ratios measured in one run: absolute times of a shared machine mean little.
"""
