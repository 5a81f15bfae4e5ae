"""Entries for trackers, computed from a run's records. Pure: knows no tracker, no files and no clock.

The names of a round's scores and of its artifact are those of the original K-Search, so that boards made for it still
work: `<task>/generate/speedup`, `<task>/generate/best_speedup` (`round_score`, `best_score` if candidates are scored),
and `r<round>_code` with `clean/`, `raw/`, `wm/` and `eval/`. Names without a task in front are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import msgspec

from actors.planner.core.state import Node, in_order
from actors.planner.jobs import Texts
from actors.recorder.folder import Snapshot
from ksearch_async.follow.tracking.base import WORLD_MODEL, Artifact, Cell, Entry, Figures, Table
from ksearch_async.runs.run import Head, Run, Tried, taken
from ksearch_async.settings.run_config import RunConfig
from messages.codec import Record, to_json
from messages.events import CandidateWritten
from messages.facts import AttemptFinished, Decided, EditsApplied
from messages.tasks import Candidate

_COLUMNS = {
    "attempts": ("round", "node", "action", "fate", "speedup", "credit", "latency_us", "candidate", "outcome"),
    "bests": ("round", "node", "speedup", "credit", "latency_us", "elapsed_s", "cost_usd", "model_calls", "candidate"),
    "nodes": ("node", "parent", "action", "state", "V", "difficulty", "depth", "rounds", "tries", "speedup", "credit"),
    "workloads": ("workload", "speedup", "latency_us", "reference_latency_us"),
}
_MARK = ("round", "node_id", "speedup", "credit", "latency_us", "elapsed_s", "cost_usd", "calls", "candidate_id")
_NODE = ("node_id", "parent_id", "title", "state", "priority", "difficulty", "depth", "rounds", "tries")
_TIMED = ("name", "speedup_vs_reference", "latency_us", "reference_latency_us")


class Ledger:
    """Turns a run's records into entries for a tracker."""

    def __init__(self) -> None:
        self.run = Run()
        self._texts = Texts()
        self._written: dict[str, tuple[Candidate, str]] = {}
        """Candidate and raw answer by the candidate's id, which may be measured more than once."""

    def take(self, record: Record) -> list[Entry]:
        """Fold a record, and return its entries, in order."""
        run = self.run
        tried, steps = len(run.tried), len(run.steps)
        run.fold(record)
        self._texts.take(record.body)
        if isinstance(record.body, CandidateWritten) and record.body.candidate is not None:
            answer = self._texts.whole(record.body)
            raw = answer.answer if isinstance(answer, CandidateWritten) else ""
            self._written[record.body.candidate.candidate_id] = (record.body.candidate, raw)
        if run.started is None:
            return []
        return list(self._entries(run.started.task.name, record, run.tried[tried:], is_best=len(run.steps) > steps))

    def tables(self) -> list[Table]:
        """Return the tables at the end of a session: all attempts, all bests, the tree, the best's workloads."""
        run = self.run
        attempts = [(one.fact, one.node_id, self._title(one.node_id)) for one in run.tried]
        workloads = run.step.mark.workloads if run.step else ()
        tables: dict[str, list[tuple[Cell, ...]]] = {
            "attempts": [
                (fact.round or None, node_id, title, fact.fate, *_worth(fact), fact.candidate_id, fact.outcome)
                for fact, node_id, title in attempts
            ],
            "bests": [tuple(getattr(step.mark, name) for name in _MARK) for step in run.steps],
            "nodes": [_node_row(node) for node in in_order(run.state.nodes)],
            "workloads": [tuple(getattr(one, name) for name in _TIMED) for one in workloads],
        }
        return [
            Table(name=name, columns=_COLUMNS[name], rows=rows)
            for name, rows in tables.items()
            if rows or name != "workloads"
        ]

    def _entries(self, task: str, record: Record, tried: list[Tried], *, is_best: bool) -> Iterator[Entry]:
        run = self.run
        for one in tried:
            if one.fact.round:
                yield Figures(round=one.fact.round, values=self._figures(task, one.fact))
                if one.fact.credit is not None and (artifact := self._code(record, one)):
                    yield artifact
        if is_best and not tried:  # confirmed, after others had their outcome
            yield Figures(round=run.state.rounds, values=self._best_figures(task))
        if isinstance(record.body, Decided) and any(isinstance(fact, EditsApplied) for fact in record.body.facts):
            yield Artifact(
                name=f"{run.state.run_id}-{WORLD_MODEL}",
                kind=WORLD_MODEL,
                round=run.state.rounds,
                files={"world_model.json": self._world_model(record)},
            )

    def _figures(self, task: str, fact: AttemptFinished) -> dict[str, Cell]:
        run, usage = self.run, self.run.state.usage
        speedup, credit, latency_us = _worth(fact)
        name, value = ("round_score", credit) if run.scored else ("speedup", speedup)
        return {
            f"{task}/generate/{name}": value,
            **self._best_figures(task),
            "round/fate": fact.fate,
            "round/credit": credit,
            "round/latency_us": latency_us,
            "run/elapsed_s": run.place.seconds,
            "run/cost_usd": run.state.cost_usd,
            "run/model_calls": usage.calls,
            "run/prompt_tokens": usage.prompt_tokens,
            "run/cached_tokens": usage.cached_tokens,
            "run/completion_tokens": usage.completion_tokens,
            "tree/nodes": len(run.state.nodes),
            "tree/open": sum(node.state == "open" for node in run.state.nodes.values()),
            **{f"fates/{fate}": count for fate, count in run.fates.items()},
        }

    def _best_figures(self, task: str) -> dict[str, Cell]:
        name = f"{task}/generate/{'best_score' if self.run.scored else 'best_speedup'}"
        if self.run.step is None:
            return {name: None}
        best = self.run.step.mark
        timed: dict[str, Cell] = {"best/credit": best.credit, "best/latency_us": best.latency_us}
        return {name: self.run.step.value, **(timed if best.speedup is not None else {})}

    def _code(self, record: Record, tried: Tried) -> Artifact | None:
        """Return a round's artifact; None if its candidate was not written in this run."""
        fact = tried.fact
        if fact.candidate_id not in self._written:
            return None
        candidate, raw = self._written[fact.candidate_id]
        summary = f"round {fact.round}: {fact.outcome}\nnode {tried.node_id}: {self._title(tried.node_id)}\n"
        return Artifact(
            name=f"r{fact.round}_code",
            kind="generated-code",
            round=fact.round,
            files={
                **{f"clean/{path}": text for path, text in _sources(candidate)},
                "raw/raw_code.txt": raw,
                "wm/world_model.json": self._world_model(record),
                "eval/round_summary.txt": summary,
            },
        )

    def _world_model(self, record: Record) -> str:
        state = self.run.state
        nodes = tuple(in_order(state.nodes))
        return to_json(taken(Snapshot, state, seq=record.seq, at=record.at, nodes=nodes)).decode()

    def _title(self, node_id: str) -> str:
        node = self.run.state.nodes.get(node_id)
        return node.title if node else ""


def parameters_of(head: Head, config: RunConfig) -> dict[str, object]:
    """Return a run's settings for a tracker: under the original's names, then everything in its head.

    None of it is secret: configurations contain no keys. Addresses are left out.
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
    """Yield a candidate's files; a file name that would leave the folder is replaced."""
    for number, file in enumerate(candidate.files, start=1):
        path = PurePosixPath(file.path)
        is_inside = not path.is_absolute() and ".." not in path.parts and file.path.isprintable() and path.parts
        yield (str(path) if is_inside else f"file{number}.txt"), file.text


def _worth(fact: AttemptFinished) -> tuple[float | None, float | None, float | None]:
    if fact.candidate_id is None or fact.credit is None:
        return None, None, None
    return fact.speedup, fact.credit, fact.latency_us


def _node_row(node: Node) -> tuple[Cell, ...]:
    told = tuple(getattr(node, name) for name in _NODE)
    return (*told, node.best.speedup if node.best else None, node.best.credit if node.best else None)
