"""Processes of the evaluator: guarded, forked from warm ones, watched, and the lease of a device."""
