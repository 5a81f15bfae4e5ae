"""Who may do what on the bus: the subjects of each role.

Jobs are programs that somebody's machine will run, so what may be said is decided by the server, not by good manners.

Two facts about nats-server decide the form. It checks what a client publishes and subscribes to, but not the subject
that a *request names for its answer*: whoever may read one message could have it delivered as a job or a decision. So
every role but `admin` and `planner` lives in an account of its own and reaches the bus through exports: answers stay in
that account. And subjects match whole tokens, so streams and consumers are named such that the kind of job or the role
is a token (`$JS.ACK.*.evaluate.>`), and no right needs a run's name.

Not covered: what holders of one role's credentials do to each other. They can take each other's jobs, answer in each
other's name, and read each other's answers; nodes that must not trust each other need servers of their own.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

TeamRole: TypeAlias = Literal["admin", "planner", "coder", "builder", "evaluator", "watcher"]
"""A user of the bus. `admin` prepares it and may do anything; `watcher` reads."""

TEAM: Final[tuple[TeamRole, ...]] = ("admin", "planner", "coder", "builder", "evaluator", "watcher")
BUCKET: Final = "ks"
"""Name of the key-value bucket that holds the entries."""


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """What a role may do; NATS subjects with wildcards."""

    requests: tuple[str, ...] = ()
    """Subjects that it may publish to, one answer or none."""
    questions: tuple[str, ...] = ()
    """The same, with any number of answers."""
    hears: tuple[str, ...] = ()
    """Subjects that it may subscribe to, besides its own inbox."""
    never: tuple[str, ...] = ()
    """Exceptions from what it may publish."""
    apart: bool = True
    """Whether it has an account of its own."""


_ENTRIES = (f"$JS.API.DIRECT.GET.KV_{BUCKET}", f"$JS.API.DIRECT.GET.KV_{BUCKET}.>")
"""Reading presence, run cards and tombstones."""
_JETSTREAM = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*")
"""Asking whether a stream is there. The first one also tells the server that this account uses another one's JetStream:
without it the second is answered with `JetStream not enabled for account` (10039)."""
_BLOBS = ("$JS.API.DIRECT.GET.*.ks.blob.>",)
"""Reading blobs by their digest."""


def inbox(role: str) -> str:
    """Return the prefix of the subjects at which a role gets answers."""
    return f"_INBOX_{role}"


def _worker(role: str, kind: str, *also: str) -> Rights:
    """Return what the workers of one kind may do: take its jobs, answer in their role, say that they are there."""
    return Rights(
        requests=(
            f"$JS.ACK.*.{kind}.>",
            f"ks.evt.*.{role}.*",
            f"ks.dead.*.{kind}.>",
            f"$KV.{BUCKET}.node.{role}.*",
            f"$JS.API.CONSUMER.INFO.*.{kind}",
            *_JETSTREAM,
            *also,
        ),
        questions=(
            f"$JS.API.CONSUMER.MSG.NEXT.*.{kind}",
            f"$JS.API.DIRECT.GET.*.ks.evt.*.{role}.*",
            *_ENTRIES,
            *_BLOBS,
        ),
        hears=(f"ks.bell.{kind}",),
    )


_PUT_BLOBS = "ks.blob.*.*.*"
_PLANNER = Rights(
    requests=(
        "ks.job.>",
        "ks.evt.*.planner.*",
        "ks.evt.*.decision",
        "ks.dead.>",
        "ks.bell.*",
        _PUT_BLOBS,
        f"$KV.{BUCKET}.node.planner.*",
        f"$KV.{BUCKET}.run.*",
        f"$KV.{BUCKET}.lease.*",
        f"$KV.{BUCKET}.cancel.*",
        "$JS.ACK.>",
    ),
    questions=("$JS.API.>",),
    never=tuple(
        f"$JS.API.{call}.KV_{BUCKET}"
        for call in ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE")
    ),
    apart=False,
)
_WATCHER = Rights(
    requests=(
        *_JETSTREAM,
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.CONSUMER.INFO.*.*",
        "$JS.API.CONSUMER.NAMES.*",
        "$JS.API.CONSUMER.LIST.*",
    ),
    questions=("$JS.API.DIRECT.GET.*", "$JS.API.DIRECT.GET.*.>"),
)

RIGHTS: Final[dict[TeamRole, Rights]] = {
    "admin": Rights(requests=(">",), hears=(">",), apart=False),
    "planner": _PLANNER,
    "coder": _worker("coder", "write", _PUT_BLOBS),
    "builder": _worker("builder", "build", _PUT_BLOBS),
    "evaluator": _worker("evaluator", "evaluate"),
    "watcher": _WATCHER,
}
