"""Triton: kernels in Python. Run by Triton's interpreter; compiled for a GPU ahead of time on request."""
