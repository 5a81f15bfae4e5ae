"""`ksearch show RUN CANDIDATE`: what was written, and what compilers and evaluators said of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from actors.bus.journal import read_journal
from ksearch_async.cli import exits
from ksearch_async.cli.output import put_json, put_lines, put_raw, told_lines
from ksearch_async.cli.profiles import profile_table
from ksearch_async.cli.verdicts import printed_lines
from ksearch_async.phrases import counted, plain
from ksearch_async.refusals import refusal
from ksearch_async.runs import RunFolder
from ksearch_async.versions import Version, Versions
from ksearch_async.workload_table import workload_table
from messages.base import ROOT
from messages.events import Built, CandidateBuilt, CandidateEvaluated
from messages.verdicts import DidNotBuild, Measured, Outpaced, outcome_line

_LOG_LINES = 20


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, and what became of it."""

    version: Version
    base: Version | None
    """What its branch started from; null: the reference."""
    title: str
    """Of its node."""
    outcome: Built | DidNotBuild | None
    """Of its latest compilation that says something."""
    verdicts: tuple[CandidateEvaluated, ...]


def show_candidate(folder: RunFolder, name: str, *, source: bool, as_json: bool) -> int:
    """Print what is known of a candidate, or its files.

    Raises:
        ConfigError: there is no such candidate.
        messages.errors.BusError: the journal is damaged, or of a newer release.
    """
    story = _story(folder, name)
    if as_json:
        put_json(_object(folder, story))
    elif source:
        put_raw("\n".join(file.text.rstrip("\n") for file in story.version.candidate.files))
    else:
        put_lines(_lines(folder, story))
    return exits.FOUND


def _story(folder: RunFolder, name: str) -> Story:
    records = list(read_journal(folder.journal))
    versions = Versions(records)
    version = versions.named(name)
    if version is None:
        raise refusal(f"{ROOT!r} is the reference, which is no candidate", "ksearch tree draws the nodes")
    own = version.candidate_id
    built = [
        each.body.outcome for each in records if isinstance(each.body, CandidateBuilt) and each.body.candidate_id == own
    ]
    telling = [outcome for outcome in built if outcome.log] or built
    return Story(
        version=version,
        base=versions.named(version.base_id) if version.base_id else None,
        title=versions.chronicle.state.node(version.node_id).title,
        outcome=telling[-1] if telling else None,
        verdicts=tuple(
            each.body for each in records if isinstance(each.body, CandidateEvaluated) and each.body.candidate_id == own
        ),
    )


def _lines(folder: RunFolder, story: Story) -> Iterator[str]:
    version, outcome = story.version, story.outcome
    candidate = version.candidate
    round_words = f"in round {version.round}" if version.round else "not evaluated"
    yield f"candidate  {version.candidate_id}, {candidate.language}"
    yield from told_lines("found      ", f"{round_words}: {version.node_id}, {story.title}")
    yield f"built on   {story.base.said if story.base else 'the reference'}"
    for evaluated in story.verdicts:
        yield from _verdict_lines(evaluated)
    if not story.verdicts and not isinstance(outcome, DidNotBuild):
        yield "verdict    none yet"
    if isinstance(outcome, DidNotBuild):
        yield from told_lines("verdict    ", f"did not build: {outcome.reason}")
    for file in candidate.files:
        yield f"file       {plain(file.path)}, {counted(len(file.text.splitlines()), 'line', 'lines')}"
    yield f"lies in    {folder.candidates / version.candidate_id}"
    if outcome is not None and outcome.log.strip():
        yield ""
        yield "what the compiler said:"
        yield from _log_lines(outcome.log.strip().splitlines())
    yield ""
    short = version.candidate_id[:8]
    yield f"its files: ksearch show {folder.run_id} {short} --source"
    yield f"what changed: ksearch diff {folder.run_id} {short}"


def _verdict_lines(evaluated: CandidateEvaluated) -> Iterator[str]:
    verdict = evaluated.verdict
    yield from told_lines("verdict    ", outcome_line(verdict))
    where = " ".join(part for part in (evaluated.device, evaluated.unit) if part)
    by = f", {evaluated.worker}" if evaluated.worker else ""
    took = f"{evaluated.wall_s:.1f} s, {evaluated.lease_s:.1f} s of that alone on the device"
    yield from told_lines("           ", f"{evaluated.purpose}: {where}{by}; {took}")
    if isinstance(verdict, Measured | Outpaced):
        yield from (f"           {line}" for line in workload_table(verdict.workloads))
    yield from printed_lines(verdict)
    if isinstance(verdict, Measured):
        yield from profile_table(verdict.profile)


def _log_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield a log's beginning."""
    for line in lines[:_LOG_LINES]:
        yield from told_lines("  ", line)
    if len(lines) > _LOG_LINES:
        yield f"  and {counted(len(lines) - _LOG_LINES, 'more line', 'more lines')}: --json has all of it"


def _object(folder: RunFolder, story: Story) -> dict[str, object]:
    version, outcome = story.version, story.outcome
    return {
        "run": folder.run_id,
        "candidate_id": version.candidate_id,
        "path": str(folder.candidates / version.candidate_id),
        "language": version.candidate.language,
        "entry_point": version.candidate.entry_point,
        "files": version.candidate.files,
        "build_log": outcome.log if outcome else "",
        "did_not_build": outcome.reason if isinstance(outcome, DidNotBuild) else "",
        "verdicts": story.verdicts,
        "node_id": version.node_id,
        "round": version.round or 0,
        "base_id": version.base_id,
    }
