"""What trackers are told of a run, worked out from its records. Pure: knows no tracker, no files and no clock.

The names of a round's scores and of its artifact are those of the original K-Search, so that a board made for it goes
on: `<task>/generate/speedup`, `<task>/generate/best_speedup` (`round_score`, `best_score` where candidates are scored),
and `r<round>_code` with `clean/`, `raw/`, `wm/` and `eval/`. What stands without a task before it is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import msgspec

from actors.planner.core.state import in_order
from actors.planner.jobs import Texts
from actors.recorder.folder import Snapshot
from ksearch_async.follow.tracking.base import WORLD_MODEL, Artifact, Cell, Entry, Figures, Table
from ksearch_async.runs.feed import AttemptView, Head, Mark, NodeView, Totals, Update, Worth
from ksearch_async.runs.updates import Folding
from ksearch_async.settings.table import RunConfig
from messages.codec import Record, to_json
from messages.events import CandidateWritten
from messages.facts import Decided, EditsApplied
from messages.tasks import Candidate

_ATTEMPTS = ("round", "node", "action", "fate", "speedup", "credit", "latency_us", "candidate", "outcome")
_BESTS = ("round", "node", "speedup", "credit", "latency_us", "elapsed_s", "cost_usd", "model_calls", "candidate")
_NODES = ("node", "parent", "action", "state", "V", "difficulty", "depth", "rounds", "tries", "speedup", "credit")
_WORKLOADS = ("workload", "speedup", "latency_us", "reference_latency_us")


class Ledger:
    """Takes a run's records, and says what a tracker is to be told of each."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.totals = Totals()
        self._folding = Folding()
        self._texts = Texts()
        self._written: dict[str, tuple[Candidate, str]] = {}
        """Candidate and raw answer by the candidate's id; it may be measured more than once."""
        self._nodes: dict[str, NodeView] = {}
        self._attempts: list[AttemptView] = []
        self._marks: list[Mark] = []

    def take(self, record: Record) -> list[Entry]:
        """Fold a record, and return what is to be told, in order."""
        update = self._folding.take(record)
        self.head, self.totals = update.head or self.head, update.totals
        self._texts.take(record.body)
        if isinstance(record.body, CandidateWritten) and record.body.candidate is not None:
            answer = self._texts.whole(record.body)
            raw = answer.answer if isinstance(answer, CandidateWritten) else ""
            self._written[record.body.candidate.candidate_id] = (record.body.candidate, raw)
        self._nodes.update((node.node_id, node) for node in update.nodes)
        self._attempts.extend(update.attempts)
        self._marks.extend(update.marks)
        return [] if self.head is None else list(self._entries(self.head, record, update))

    def tables(self) -> list[Table]:
        """Return what is told when a session ends: all attempts, all bests, the tree, the best's workloads."""
        workloads = self._marks[-1].workloads if self._marks else ()
        rows = [
            (each.name, each.speedup_vs_reference, each.latency_us, each.reference_latency_us) for each in workloads
        ]
        return [
            Table(name="attempts", columns=_ATTEMPTS, rows=[self._attempt_row(each) for each in self._attempts]),
            Table(name="bests", columns=_BESTS, rows=[_mark_row(mark) for mark in self._marks]),
            Table(name="nodes", columns=_NODES, rows=[_node_row(node) for node in self._nodes.values()]),
            *([Table(name="workloads", columns=_WORKLOADS, rows=rows)] if rows else []),
        ]

    def _entries(self, head: Head, record: Record, update: Update) -> Iterator[Entry]:
        for attempt in update.attempts:
            if attempt.round:
                yield Figures(round=attempt.round, values=self._figures(head, attempt))
                if attempt.worth is not None and (artifact := self._code(record, attempt)):
                    yield artifact
        if update.marks and not update.attempts:  # confirmed, after others had their outcome
            yield Figures(round=update.totals.rounds, values=self._best_figures(head))
        if isinstance(record.body, Decided) and any(isinstance(fact, EditsApplied) for fact in record.body.facts):
            yield Artifact(
                name=f"{head.run_id}-{WORLD_MODEL}",
                kind=WORLD_MODEL,
                round=update.totals.rounds,
                files={"world_model.json": self._world_model(record)},
            )

    def _figures(self, head: Head, attempt: AttemptView) -> dict[str, Cell]:
        totals, worth = self.totals, attempt.worth
        name = "round_score" if head.scored else "speedup"
        return {
            f"{head.task}/generate/{name}": _score(head, worth),
            **self._best_figures(head),
            "round/fate": attempt.fate,
            "round/credit": worth.credit if worth else None,
            "round/latency_us": worth.latency_us if worth else None,
            "run/elapsed_s": totals.elapsed_s,
            "run/cost_usd": totals.cost_usd,
            "run/model_calls": totals.calls,
            "run/prompt_tokens": totals.prompt_tokens,
            "run/cached_tokens": totals.cached_tokens,
            "run/completion_tokens": totals.completion_tokens,
            "tree/nodes": len(self._nodes),
            "tree/open": sum(node.state == "open" for node in self._nodes.values()),
            **{f"fates/{fate}": count for fate, count in totals.fates.items()},
        }

    def _best_figures(self, head: Head) -> dict[str, Cell]:
        name = f"{head.task}/generate/{'best_score' if head.scored else 'best_speedup'}"
        if not self._marks:
            return {name: None}
        best = self._marks[-1]
        told: dict[str, Cell] = {name: best.credit if best.speedup is None else best.speedup}
        if best.speedup is not None:
            told |= {"best/credit": best.credit, "best/latency_us": best.latency_us}
        return told

    def _code(self, record: Record, attempt: AttemptView) -> Artifact | None:
        """Return a round's artifact; none if its candidate was not written in this run."""
        if attempt.candidate_id not in self._written:
            return None
        candidate, raw = self._written[attempt.candidate_id]
        summary = f"round {attempt.round}: {attempt.outcome}\nnode {attempt.node_id}: {self._title(attempt.node_id)}\n"
        return Artifact(
            name=f"r{attempt.round}_code",
            kind="generated-code",
            round=attempt.round,
            files={
                **{f"clean/{path}": text for path, text in _sources(candidate)},
                "raw/raw_code.txt": raw,
                "wm/world_model.json": self._world_model(record),
                "eval/round_summary.txt": summary,
            },
        )

    def _world_model(self, record: Record) -> str:
        """Return the tree after a record, as `world_model/latest.json` in the run's folder has it."""
        state = self._folding.chronicle.state
        snapshot = Snapshot(
            seq=record.seq,
            at=record.at,
            run_id=state.run_id,
            rounds=state.rounds,
            summary=state.summary,
            open_questions=state.open_questions,
            nodes=tuple(in_order(state.nodes)),
        )
        return to_json(snapshot).decode()

    def _title(self, node_id: str) -> str:
        return self._nodes[node_id].title if node_id in self._nodes else ""

    def _attempt_row(self, attempt: AttemptView) -> tuple[Cell, ...]:
        worth = attempt.worth or Worth(candidate_id=attempt.candidate_id)
        return (
            attempt.round or None,
            attempt.node_id,
            self._title(attempt.node_id),
            attempt.fate,
            worth.speedup,
            worth.credit,
            worth.latency_us,
            attempt.candidate_id or None,
            attempt.outcome,
        )


def parameters_of(head: Head, config: RunConfig) -> dict[str, object]:
    """Return what a tracker shows of a run's settings: under the original's names, then all that a head says.

    Nothing of it is secret: configurations hold no keys. Addresses are left out.
    """
    search = config.search
    return {
        "task": head.task,
        "generator": {"model_name": ", ".join(head.models), "language": head.language, "target_gpu": head.device},
        "max_opt_rounds": head.max_rounds,
        "continue_from_solution": config.continue_from.solution,
        "continue_from_world_model": config.continue_from.world_model,
        "enable_world_model": search.world_model != "off",
        "wm_stagnation_window": search.stagnation_window,
        "wm_max_difficulty": search.max_difficulty,
        "num_eval_workload": max(1, len(head.workloads)),
        "artifacts_dir": config.runs_dir,
        "ksearch": msgspec.to_builtins(head),
    }


def _sources(candidate: Candidate) -> Iterable[tuple[str, str]]:
    """Yield a candidate's files; a name that a model chose to leave the folder is replaced."""
    for number, file in enumerate(candidate.files, start=1):
        path = PurePosixPath(file.path)
        is_inside = not path.is_absolute() and ".." not in path.parts and file.path.isprintable() and path.parts
        yield (str(path) if is_inside else f"file{number}.txt"), file.text


def _score(head: Head, worth: Worth | None) -> float | None:
    if worth is None:
        return None
    return worth.credit if head.scored else worth.speedup


def _mark_row(mark: Mark) -> tuple[Cell, ...]:
    return (
        mark.round,
        mark.node_id,
        mark.speedup,
        mark.credit,
        mark.latency_us,
        mark.elapsed_s,
        mark.cost_usd,
        mark.calls,
        mark.candidate_id,
    )


def _node_row(node: NodeView) -> tuple[Cell, ...]:
    best = node.best or Worth(candidate_id="")
    return (
        node.node_id,
        node.parent_id,
        node.title,
        node.state,
        node.priority,
        node.difficulty,
        node.depth,
        node.rounds,
        node.tries,
        best.speedup,
        best.credit,
    )
