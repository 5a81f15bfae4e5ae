"""The short-lived process of `probe_layers`: enters the sandbox and prints what came of it. Stdlib only."""

from __future__ import annotations

import json
import os
import sys

from evaluators.sandbox import profiles
from evaluators.sandbox.confine import confine


def report() -> None:
    """Enter the sandbox with the folder that is the argument; print the claim, and what is missing and why."""
    confined = confine(profiles.run(sys.argv[1], reads=(), memory_bytes=0, file_bytes=0))
    os.write(1, json.dumps({"claim": confined.claim, "missing": confined.missing}).encode())
