"""Entry of the judge process: `python -m evaluators.judge DESCRIPTOR`."""

from __future__ import annotations

import sys

from evaluators.judge.service import serve

if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1])))
