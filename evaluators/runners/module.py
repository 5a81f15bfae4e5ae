"""Calls candidates that are torch modules, `ModelNew`, on the CPU. A process per candidate, forked from a warm one.

`python -m` of this is the warm process; environment and descriptors are as in `evaluators/judge/candidate/runner.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys


def main() -> int:
    """Serve one judge until it goes away."""
    with contextlib.suppress(ImportError):  # an installation may lack it, and so do candidates then
        for module in ("numpy.linalg", "numpy.fft", "numpy.random"):
            importlib.import_module(module)
    from evaluators.runners.module_call import serve_candidate  # noqa: PLC0415 - not before
    from evaluators.runners.warm import fork_runners  # noqa: PLC0415

    return fork_runners(serve_candidate)


if __name__ == "__main__":
    sys.exit(main())
