"""What commands print: results to stdout, everything else to stderr. Plain text, readable without colour."""

from __future__ import annotations

import sys

import msgspec


def put(text: str = "") -> None:
    """Write a line of results."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def put_json(value: object) -> None:
    """Write a result as one line of JSON."""
    put(msgspec.json.encode(value).decode())


def note(text: str) -> None:
    """Write a line that is no result."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def report_error(error: BaseException, *, as_json: bool, as_event: bool = False) -> None:
    """Say what went wrong: one `error:` line, then a `hint:` line for each of the exception's notes.

    Args:
        error: what was raised.
        as_json: say it on stdout too, as an object.
        as_event: that object is one of a stream of events, which have a `kind`.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    hints = [str(hint) for hint in getattr(error, "__notes__", ())]
    note(f"error: {text}")
    for hint in hints:
        note(f"hint: {hint}")
    if as_json:
        kind = {"kind": "error"} if as_event else {}
        put_json({**kind, "error": text, **({"hint": "; ".join(hints)} if hints else {})})
