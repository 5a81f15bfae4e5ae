"""Runners of torch modules on a CPU."""
