"""Figures, one module each. Each has `pictures(series)`, which yields what can be drawn of these runs.

None imports matplotlib: `report/gallery.py` hands each a figure of it to draw on.
"""
