"""Runners of Triton programs in the interpreter."""
