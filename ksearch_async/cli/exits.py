"""Exit codes: what a script that calls ksearch may rely on."""

from __future__ import annotations

from typing import Final

FOUND: Final = 0
"""`run`, `resume`: a correct candidate is faster than the reference (credit above 1). `eval`: it was measured."""
NOT_FOUND: Final = 1
"""Ended without one; for `eval`, any verdict but `measured`."""
BAD_INPUT: Final = 2
INFRASTRUCTURE: Final = 3
"""Something that is neither the input's nor a candidate's fault failed."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""Who read the output went away; what shells report for SIGPIPE."""
