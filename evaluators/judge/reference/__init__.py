"""The reference: the problem's own code, its operators, and the baseline workers that run it."""
