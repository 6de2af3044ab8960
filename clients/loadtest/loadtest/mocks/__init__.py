"""Servers that cost next to nothing, to measure what stands in front of them."""
