"""Part of exported modules: what they do when they are run."""

from __future__ import annotations

import argparse
import sys

from ksearch_async.export.parts.checking import self_test
from ksearch_async.export.parts.facts import RECEIPT


def main() -> int:
    """Print where the kernel comes from, its receipt, or what the self-test finds."""
    parser = argparse.ArgumentParser(description="A kernel that was exported by ksearch-async.")
    parser.add_argument("--receipt", action="store_true", help="print the verdict that the kernel was exported with")
    parser.add_argument("--self-test", action="store_true", help="compare the kernel with its reference; exit 0 or 1")
    parser.add_argument("--seed", type=int, help="of the self-test's first call")
    asked = parser.parse_args()
    if asked.self_test:
        try:
            return 0 if self_test(asked.seed) else 1
        except (RuntimeError, TypeError, ValueError) as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    sys.stdout.write(RECEIPT.strip() + "\n" if asked.receipt else (__doc__ or "").strip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
