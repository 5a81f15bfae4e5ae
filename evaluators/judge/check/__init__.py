"""Correctness: calls on several distributions, comparison in float64, and the description of wrong outputs."""
