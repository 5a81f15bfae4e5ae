"""Exit codes: what a script that calls ksearch may rely on."""

from __future__ import annotations

from typing import Final

FOUND: Final = 0
"""`run`, `resume`: a correct candidate is faster than the reference (credit above 1). `eval`: it was measured."""
NOT_FOUND: Final = 1
"""No candidate is; for `eval`, any verdict but `measured`."""
BAD_INPUT: Final = 2
INFRASTRUCTURE: Final = 3
"""A failure that neither the input nor a candidate caused."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""The reader of the output went away; shells report this number for SIGPIPE."""
