"""Names of queues and streams. Ids are lower-case `[a-z0-9-]`; free text never becomes part of a NATS subject."""

from __future__ import annotations

import re

from messages.base import Language, Role

_ROLES: dict[str, Role] = {"write": "coder", "build": "builder", "evaluate": "evaluator"}
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def checked_id(text: str) -> str:
    """Return `text` if it may be part of a subject.

    Raises:
        ValueError: it has other characters than lower-case letters, digits and dashes, or more than 64.
    """
    if _ID.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no id: use lower-case letters, digits and dashes, 64 at most")
    return text


def write_jobs(run_id: str, tier: str = "default") -> str:
    """Name the queue of coder work for one class of models."""
    return f"ks.job.write.{checked_id(tier)}.any.{checked_id(run_id)}"


def build_jobs(run_id: str, language: Language, arch: str) -> str:
    """Name the queue of builder work for one language and architecture."""
    return f"ks.job.build.{_token(arch)}.{language}.{checked_id(run_id)}"


def evaluate_jobs(run_id: str, language: Language, arch: str) -> str:
    """Name the queue of evaluator work for one language and architecture."""
    return f"ks.job.evaluate.{_token(arch)}.{language}.{checked_id(run_id)}"


def run_of(queue: str) -> str:
    """Return the run of a job queue: its last token."""
    return queue.rsplit(".", 1)[-1]


def role_of(queue: str) -> Role:
    """Return who does the jobs of a queue.

    Raises:
        ValueError: it is no queue of ours.
    """
    parts = queue.split(".")
    kind = parts[2] if len(parts) > 2 else ""
    if kind not in _ROLES:
        raise ValueError(f"{queue!r} is no queue of ours")
    return _ROLES[kind]


def _token(text: str) -> str:
    return checked_id(text.lower().replace("_", "-"))
