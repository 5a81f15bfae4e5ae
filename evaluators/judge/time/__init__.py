"""Timing on CPU and GPU: pairs with the reference, both clocks, cold caches, quiet cores."""
