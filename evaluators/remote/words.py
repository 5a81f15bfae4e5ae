"""Requests of this host to the remote one, and the answers: one JSON text each."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from evaluators.base import BuildReport, EvaluationReport
from messages.base import Language
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.tasks import Target, TaskDescription, TaskSpec


class Probe(msgspec.Struct, frozen=True, kw_only=True, tag="probe.v1"):
    """Request for the far machine's target."""

    language: Language


class Describe(msgspec.Struct, frozen=True, kw_only=True, tag="describe.v1"):
    """Request for the description of a task."""

    task: TaskSpec
    language: Language


class Build(msgspec.Struct, frozen=True, kw_only=True, tag="build.v1"):
    """Request for a build."""

    job: BuildCandidate


class Judge(msgspec.Struct, frozen=True, kw_only=True, tag="judge.v1"):
    """Request for a verdict, with the job of the build, since another machine may have built it."""

    built: BuildCandidate
    job: EvaluateCandidate


class Probed(msgspec.Struct, frozen=True, kw_only=True, tag="probed.v1"):
    """Target of the build."""

    target: Target


class Described(msgspec.Struct, frozen=True, kw_only=True, tag="described.v1"):
    """Facts about the task."""

    description: TaskDescription


class WasBuilt(msgspec.Struct, frozen=True, kw_only=True, tag="built.v1"):
    """Result of a build."""

    report: BuildReport


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="judged.v1"):
    """A verdict."""

    report: EvaluationReport


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed.v1"):
    """An error of the far side, which is raised again on the near one."""

    boundary: Literal["config", "evaluator"]
    """Origin of the failure: the user's input, or the machine."""
    text: str
    permanent: bool = False


Request: TypeAlias = Probe | Describe | Build | Judge
Answer: TypeAlias = Probed | Described | WasBuilt | Judged | Failed

encoder = msgspec.json.Encoder()
request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
answer_decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
