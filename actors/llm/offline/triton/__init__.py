"""Writes Triton: from a graph and a plan to a `kernel.py` that keeps the calling contract of the prompt."""
