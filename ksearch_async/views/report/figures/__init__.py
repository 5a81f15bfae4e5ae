"""Figures of runs: one module per figure, each with `pictures(series)`. None imports matplotlib."""
