"""Messages between evaluator and judge: msgpack structs in length-prefixed frames on a socket of their own.

Output of candidates and problems goes to a log and cannot reach this socket.
"""

from __future__ import annotations

import socket
from typing import Literal, TypeAlias

import msgspec

from evaluators.judge.time import heartbeat
from messages.base import Isolation, Language, ProtocolError
from messages.commands import Purpose
from messages.tasks import TaskDescription, TaskSpec
from messages.verdicts import CallCheck, Verdict, WorkloadProfile

HEADER_BYTES = 4
MAX_FRAME_BYTES = 64 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a candidate. Wall-clock limits are by the judge's clock."""

    start_s: float = 30.0
    """Seconds until the runner is ready; on a GPU with its context."""
    load_s: float = 10.0
    first_call_s: float = 10.0
    call_s: float = 3.0
    """Least limit of a later call; it grows to `call_slowdown` times the reference's own time."""
    call_slowdown: float = 50.0
    evaluation_s: float = 120.0
    """Limit of all calls together; grows to `evaluation_slowdown` times the reference's own time."""
    evaluation_slowdown: float = 500.0
    memory_bytes: int = 4 << 30
    """Address space beyond the tensors and the threads' stacks."""
    printed_bytes: int = 256 << 10
    """Further output is dropped."""
    isolation: Isolation = "auto"
    """`strict`: refuse to run without the layers that keep a candidate from the host."""


GPU_LIMITS = Limits(load_s=180.0, first_call_s=60.0, call_s=5.0, evaluation_s=120.0)
"""Limits of candidates on a GPU: the first call may compile and tune."""

INTERPRETED_LIMITS = Limits(load_s=20.0, first_call_s=60.0, call_s=60.0, evaluation_s=180.0)
"""Limits of interpreted candidates: a call may take a thousand times as long as on its device."""

Work: TypeAlias = Literal["check", "time", "both"]
"""Work of a judge. On a CPU, checks may run beside a timing, which has its device alone. On a GPU one judge does both,
one after the other."""


Baseline: TypeAlias = Literal["", "torch.compile"]


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """First frame: the only task of this judge, and its work."""

    task: TaskSpec
    language: Language
    limits: Limits
    work: Work
    device: str = "cpu"
    """`cpu`, or `cuda:0`: a judge of a GPU sees only that one."""
    baseline: Baseline = ""
    """A second program to time beside the reference."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A built candidate."""

    product: str
    """Path of the build product: a shared library, a Python file."""
    entry_point: str


class Describe(msgspec.Struct, frozen=True, kw_only=True, tag="describe"):
    """Ask for the task's description."""


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Ask a checking judge whether a candidate is correct."""

    artifact: Artifact
    purpose: Purpose = "screen"
    """With `confirm` it is also checked on hidden workloads."""
    keep_above: float | None = None
    """See `EvaluateCandidate`; used on a GPU, where a candidate far below need not be checked further."""


class Time(msgspec.Struct, frozen=True, kw_only=True, tag="time"):
    """Ask a timing judge for the speed of a checked candidate. The judge has the device until it answers."""

    artifact: Artifact
    purpose: Purpose
    keep_above: float | None = None
    """See `EvaluateCandidate`."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag="profile"):
    """Ask a judge of a GPU for the GPU activity in a call of a timed candidate. The judge has the device."""

    artifact: Artifact


ToJudge: TypeAlias = Open | Describe | Check | Time | Profile


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened"):
    """The problem was loaded and its reference runs."""


class ProblemBroken(msgspec.Struct, frozen=True, kw_only=True, tag="problem_broken"):
    """The problem cannot be used; the judge ends."""

    text: str


class Described(msgspec.Struct, frozen=True, kw_only=True, tag="described"):
    """Answer to `Describe`."""

    description: TaskDescription


class Passed(msgspec.Struct, frozen=True, kw_only=True, tag="passed"):
    """The candidate is correct on every checked call."""

    checks: tuple[CallCheck, ...]
    reference_dtype: str
    """Precision of the expected values."""
    deterministic: bool | None = None
    """True if a repeated call gave the same bits; None: not checked."""
    notes: tuple[str, ...]
    isolation: tuple[str, ...] = ()
    """The layers that isolated its process; see `evaluators/process/sandbox/claims.py`."""
    printed: str = ""
    """As in `Measured`; empty if a hidden workload was called."""


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="judged"):
    """Answer to `Check` and `Time`."""

    verdict: Verdict
    isolation: tuple[str, ...] = ()
    """As in `Passed`; empty if no process was started."""


class Profiled(msgspec.Struct, frozen=True, kw_only=True, tag="profiled"):
    """Answer to `Profile`."""

    workloads: tuple[WorkloadProfile, ...] = ()
    error: str = ""
    """Reason why there is none."""


class JudgeFailed(msgspec.Struct, frozen=True, kw_only=True, tag="judge_failed"):
    """The judge itself is broken; it ends."""

    text: str
    permanent: bool = False
    """True if another judge on this host would fail in the same way."""


FromJudge: TypeAlias = Opened | ProblemBroken | Described | Passed | Judged | Profiled | JudgeFailed

_encoder = msgspec.msgpack.Encoder()
_to_judge: msgspec.msgpack.Decoder[ToJudge] = msgspec.msgpack.Decoder(ToJudge)
_from_judge: msgspec.msgpack.Decoder[FromJudge] = msgspec.msgpack.Decoder(FromJudge)


def encode_frame(message: ToJudge | FromJudge) -> bytes:
    """Return a message with its length prefix."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_bytes(header: bytes) -> int:
    """Return the length of the body after a header."""
    size = int.from_bytes(header, "big")
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {size} bytes on a judge's channel")
    return size


def decode_from_judge(body: bytes) -> FromJudge:
    """Parse an answer."""
    try:
        return _from_judge.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not an answer of a judge: {error}") from error


class JudgeChannel:
    """The judge's end. Blocks."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def send(self, message: FromJudge) -> None:
        """Send a message to the evaluator."""
        self._channel.sendall(encode_frame(message))

    def receive(self) -> ToJudge | None:
        """Wait for a request. None when the evaluator is gone.

        Raises:
            ProtocolError: the message is not a request.
        """
        heartbeat.rest()
        header = self._exactly(HEADER_BYTES)
        if header is None:
            return None
        body = self._exactly(body_bytes(header))
        if body is None:
            return None
        heartbeat.beat()
        try:
            return _to_judge.decode(body)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"not a request to a judge: {error}") from error

    def fileno(self) -> int:
        """Return the descriptor, for a child that must close it."""
        return self._channel.fileno()

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            chunk = self._channel.recv(size - len(parts))
            if not chunk:
                return None
            parts += chunk
        return bytes(parts)
