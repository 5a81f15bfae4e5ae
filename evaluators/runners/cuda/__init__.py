"""Runners on NVIDIA GPUs."""
