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
    """Until the runner is there; on a GPU with its context."""
    load_s: float = 10.0
    first_call_s: float = 10.0
    call_s: float = 3.0
    """Least limit of a later call; it grows to `call_slowdown` times the reference's own time."""
    call_slowdown: float = 50.0
    evaluation_s: float = 120.0
    """Sum of the calls; grows to `evaluation_slowdown` times the reference's own time."""
    evaluation_slowdown: float = 500.0
    memory_bytes: int = 4 << 30
    """Address space beyond the tensors and the threads' stacks."""
    printed_bytes: int = 256 << 10
    """The rest is dropped."""
    isolation: Isolation = "auto"
    """`strict`: only behind the layers without which a candidate could reach the host."""


GPU_LIMITS = Limits(load_s=180.0, first_call_s=60.0, call_s=5.0, evaluation_s=120.0)
"""For candidates on a GPU: the first call may compile and tune."""

INTERPRETED_LIMITS = Limits(load_s=20.0, first_call_s=60.0, call_s=60.0, evaluation_s=180.0)
"""For candidates that an interpreter runs: a call may take a thousand times as long as on its device."""

Work: TypeAlias = Literal["check", "time", "both"]
"""Work of a judge. Checks may go on beside a timing on a CPU; a timing has its device alone. On a GPU one judge does
both, one after the other."""


Baseline: TypeAlias = Literal["", "torch.compile"]


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """First frame: the one task of this judge, and its work."""

    task: TaskSpec
    language: Language
    limits: Limits
    work: Work
    device: str = "cpu"
    """`cpu`, or `cuda:0`: a judge of a GPU sees that one only."""
    baseline: Baseline = ""
    """A second program that is timed beside the reference."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A built candidate."""

    product: str
    """Path of what was built: a shared library, a Python file."""
    entry_point: str


class Describe(msgspec.Struct, frozen=True, kw_only=True, tag="describe"):
    """Ask for the task's description."""


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Ask a checking judge whether a candidate is correct."""

    artifact: Artifact
    purpose: Purpose = "screen"
    """To `confirm` it, it is checked on hidden workloads too."""
    keep_above: float | None = None
    """See `EvaluateCandidate`; heeded on a GPU, where a candidate that is far below need not be checked further."""


class Time(msgspec.Struct, frozen=True, kw_only=True, tag="time"):
    """Ask a timing judge how fast a candidate is that passed its checks. The device is its own until it answers."""

    artifact: Artifact
    purpose: Purpose
    keep_above: float | None = None
    """See `EvaluateCandidate`."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag="profile"):
    """Ask a judge of a GPU what the GPU does in a call of a candidate that was timed. The device is its own."""

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
    """True if a repeated call gave the same bits; None: not looked at."""
    notes: tuple[str, ...]
    isolation: tuple[str, ...] = ()
    """The layers that its process was behind; see `evaluators/process/sandbox/claims.py`."""
    printed: str = ""
    """As in `Measured`; empty where a hidden workload was called."""


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="judged"):
    """Answer to `Judge`."""

    verdict: Verdict
    isolation: tuple[str, ...] = ()
    """As in `Passed`; empty where no process was started."""


class Profiled(msgspec.Struct, frozen=True, kw_only=True, tag="profiled"):
    """Answer to `Profile`."""

    workloads: tuple[WorkloadProfile, ...] = ()
    error: str = ""
    """Why there is none."""


class JudgeFailed(msgspec.Struct, frozen=True, kw_only=True, tag="judge_failed"):
    """The judge itself is broken; it ends."""

    text: str
    permanent: bool = False
    """True if another one on this host would fail likewise."""


FromJudge: TypeAlias = Opened | ProblemBroken | Described | Passed | Judged | Profiled | JudgeFailed

_encoder = msgspec.msgpack.Encoder()
_to_judge: msgspec.msgpack.Decoder[ToJudge] = msgspec.msgpack.Decoder(ToJudge)
_from_judge: msgspec.msgpack.Decoder[FromJudge] = msgspec.msgpack.Decoder(FromJudge)


def encode_frame(message: ToJudge | FromJudge) -> bytes:
    """Return a message with its length in front."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_bytes(header: bytes) -> int:
    """Return how long the body is that follows a header."""
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
        """Say something to the evaluator."""
        self._channel.sendall(encode_frame(message))

    def receive(self) -> ToJudge | None:
        """Wait for a request. None when the evaluator is gone.

        Raises:
            ProtocolError: what came is no request.
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
