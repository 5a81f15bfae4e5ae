"""Writes Triton: from a graph and a plan to a `kernel.py` that follows the prompt's calling contract."""
