"""Calls candidates that are torch modules, `ModelNew`, on the CPU. A process per candidate, forked from a warm one.

`python -m` of this is the warm process; environment and descriptors are as in `evaluators/judge/launching.py`.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Serve one judge until it goes away."""
    # Modules have no numpy: its BLAS would be a library that torch's dispatcher does not see. Importing it fails.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    from evaluators.runners.module_call import serve_candidate  # noqa: PLC0415 - not before
    from evaluators.runners.warm import fork_runners  # noqa: PLC0415

    return fork_runners(serve_candidate)


if __name__ == "__main__":
    sys.exit(main())
