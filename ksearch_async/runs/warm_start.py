"""Starting points of a run: a candidate, or the world model of another run.

Measurements belong to one task, device and toolchain. If these agree, the candidates of the earlier run are taken over,
and each is measured again when its action is chosen. If not, models get the earlier results in words, and they do not
count. No earlier measurement ever counts as a measurement of this run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from actors.planner.core.state import Node, SearchState, in_order
from actors.planner.core.steering import MAX_CANDIDATE_BYTES, cleaned
from actors.recorder.folder import Snapshot
from ksearch_async.errors import refusal, suggestion
from ksearch_async.evaluation.candidates import read_given
from ksearch_async.runs.folder import RunFolder, list_runs, read_run
from ksearch_async.runs.run import Run
from ksearch_async.settings.run_config import RunConfig
from messages.base import ROOT
from messages.events import RunStarted
from messages.settings import Heritage, InheritedNode
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import worth_text

AUTO = "auto"
MAX_NODES = 1000
"""Most nodes that are taken over, oldest first: parents come before their children."""
MAX_CANDIDATES_BYTES = 2 << 20
"""Most bytes of source text of candidates that are taken over, best first: the run's first event contains them."""
_MAX_TITLE, _MAX_DESCRIPTION = 120, 2000
_MAX_FILE_BYTES = 64 << 20


def read_solution(config: RunConfig) -> Candidate | None:
    """Return the candidate that a run is configured to begin with; None if there is none.

    Raises:
        ConfigError: it cannot be read, or is in another language.
    """
    name = config.continue_from.solution
    if name is None:
        return None
    path = Path(name)
    if not path.exists() and (best := Path(config.runs_dir) / name / "best").is_dir():
        path = best
    elif path.is_dir() and (path / "best").is_dir():
        path = path / "best"
    candidate = read_given(path, config.candidate_language, is_program=config.program.evaluator is not None)
    if sum(len(file.text) for file in candidate.files) > MAX_CANDIDATE_BYTES:
        raise refusal(f"{str(path)!r} is too long: {MAX_CANDIDATE_BYTES} bytes are taken at most")
    return candidate


def read_heritage(config: RunConfig, task: TaskSpec, target: Target) -> Heritage | None:
    """Return the world model that a run is configured to begin with; None if there is none.

    Args:
        config: names a run, a file, or `auto`: the latest run here of the same task that has a tree.
        task: the new run's task.
        target: the target of the new run's candidates.

    Raises:
        ConfigError: it does not exist, or cannot be read.
        messages.base.BusError: the earlier run's journal is damaged.
    """
    name = config.continue_from.world_model
    if name is None:
        return None
    runs_dir = Path(config.runs_dir)
    if name == AUTO:
        return _of_latest(runs_dir, task, target)
    for path in (runs_dir / name, Path(name)):
        if (path / "journal.jsonl").is_file():
            folder = RunFolder(path.resolve())
            return _of_run(folder, read_run(folder), task, target)
    if Path(name).is_file():
        return _of_file(Path(name))
    known = [run.run_id for run in list_runs(runs_dir)]
    raise refusal(f"no run and no file {name!r}", suggestion(name, known, "name a run, a file, or auto"))


def _of_latest(runs_dir: Path, task: TaskSpec, target: Target) -> Heritage:
    for folder in list_runs(runs_dir):
        chronicle = read_run(folder)
        started = chronicle.started
        if started is not None and started.task.task_id == task.task_id and len(chronicle.state.nodes) > 1:
            return _of_run(folder, chronicle, task, target)
    raise refusal(f"no run in {str(runs_dir)!r} has a world model of this task", "name a run, or leave it out")


def _of_run(folder: RunFolder, chronicle: Run, task: TaskSpec, target: Target) -> Heritage:
    started, state = chronicle.started, chronicle.outlook
    if started is None or len(state.nodes) <= 1:
        raise refusal(f"run {folder.run_id!r} has no world model", "name another, or leave it out")
    candidates = _carried(folder, state) if _agrees(started, task, target) else {}
    where = f"on {started.target.device}" + ("" if started.task.task_id == task.task_id else ", for another task")
    return Heritage(
        origin=folder.run_id,
        summary=_preface(state.summary, f"run {folder.run_id} {where}"),
        open_questions=state.open_questions,
        nodes=tuple(_inherited(in_order(state.nodes), candidates, where)),
    )


def _agrees(started: RunStarted, task: TaskSpec, target: Target) -> bool:
    same_task = started.task.task_id == task.task_id
    same_place = (started.target.fingerprint, started.target.device) == (target.fingerprint, target.device)
    return same_task and same_place


def _carried(folder: RunFolder, state: SearchState) -> dict[str, Candidate]:
    """Return the nodes' candidates by id: the best ones, up to the size limit."""
    found = {node.best.candidate_id: node.best.credit or 0.0 for node in state.nodes.values() if node.best}
    archive = read_run(folder, with_texts=True).archive
    written = archive.written if archive is not None else {}
    texts = {each: written[each][0] for each in found if each in written}
    carried, room = {}, MAX_CANDIDATES_BYTES
    for candidate_id in sorted(texts, key=lambda each: -found[each]):
        room -= sum(len(file.text) for file in texts[candidate_id].files)
        if room < 0:
            break
        carried[candidate_id] = texts[candidate_id]
    return carried


def _inherited(nodes: list[Node], candidates: dict[str, Candidate], where: str) -> Iterator[InheritedNode]:
    """Yield the actions with their results in words, without those that the machine made and that had no result."""
    best = max((node.best.credit or 0.0 for node in nodes if node.best), default=0.0)
    places: dict[str, int] = {ROOT: -1}
    for node in nodes:
        is_empty = node.origin == "machine" and node.best is None
        if node.node_id == ROOT or node.parent_id not in places or is_empty or len(places) > MAX_NODES:
            continue
        places[node.node_id] = len(places) - 1
        candidate = candidates.get(node.best.candidate_id) if node.best else None
        yield InheritedNode(
            parent=places[node.parent_id],
            title=node.title,
            description=node.description[:_MAX_DESCRIPTION],
            difficulty=node.difficulty,
            priority=_priority(node, best) if candidate is not None else node.priority,
            earlier=_earlier(node, where),
            pruned=_pruned(node),
            candidate=candidate,
        )


def _priority(node: Node, best: float) -> float:
    """Return the priority of a result for being measured again, by its distance to the best."""
    credit = node.best.credit or 0.0 if node.best else 0.0
    return round(min(1.0, max(node.priority, credit / best if best > 0 else 0.0)), 3)


def _earlier(node: Node, where: str) -> str:
    if (best := node.best) is not None:
        worth = "correct" if best.credit is None else worth_text(best.credit, best.speedup, is_least=best.is_least)
        return f"{worth} {where}"
    failed = ", ".join(f"{count} {fate}" for fate, count in node.fates)
    return f"no correct candidate ({failed}) {where}" if failed else f"not tried {where}"


def _pruned(node: Node) -> str:
    if node.forbidden is not None:
        return f"a person forbade it: {node.forbidden}" if node.forbidden else "a person forbade it"
    return node.prune_reason if node.state == "pruned" else ""


def _preface(summary: str, origin: str) -> str:
    return f"(Taken over from {origin}; its figures are of that run.)\n\n{summary}" if summary else ""


def _of_file(path: Path) -> Heritage:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise refusal(f"{str(path)!r} is too large for a world model")
        content = path.read_bytes()
        value = msgspec.json.decode(content)
        if isinstance(value, dict) and "decision_tree" in value:
            return _of_original(path, msgspec.convert(value, _OriginalModel, strict=False))
        snapshot = msgspec.json.decode(content, type=Snapshot)
    except OSError as error:
        raise refusal(f"cannot read world model {str(path)!r}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "name a run, or the world_model/latest.json of one"
        raise refusal(f"{str(path)!r} is no world model: {error}", hint) from error
    return Heritage(
        origin=path.name,
        summary=_preface(snapshot.summary, f"run {snapshot.run_id}"),
        open_questions=snapshot.open_questions,
        nodes=tuple(_inherited(list(snapshot.nodes), {}, f"in run {snapshot.run_id}")),
    )


class _OriginalAction(msgspec.Struct, frozen=True):
    title: str = ""
    description: str | None = ""
    difficulty_1_to_5: float | None = 3
    score_0_to_1: float | None = 0.5


class _OriginalNode(msgspec.Struct, frozen=True):
    """A node of K-Search's document (K-Search, `world_model.py`); null: the field was not filled."""

    node_id: str
    parent_id: str | None = None
    choice: str | None = None
    action: _OriginalAction | None = None
    solution_ref: dict[str, Any] | None = None


class _OriginalTree(msgspec.Struct, frozen=True):
    root_id: str
    nodes: tuple[_OriginalNode, ...]


class _OriginalModel(msgspec.Struct, frozen=True):
    decision_tree: _OriginalTree
    kernel_summary: str | None = ""
    open_questions: tuple[str, ...] | None = ()


def _of_original(path: Path, model: _OriginalModel) -> Heritage:
    tree = model.decision_tree
    children: dict[str | None, list[_OriginalNode]] = {}
    known = {node.node_id for node in tree.nodes}
    for node in tree.nodes:
        parent = node.parent_id if node.parent_id in known else tree.root_id
        if node.node_id != tree.root_id:
            children.setdefault(parent, []).append(node)
    nodes: list[InheritedNode] = []
    waiting = [(node, -1) for node in reversed(children.pop(tree.root_id, []))]
    while waiting and len(nodes) < MAX_NODES:
        node, parent_place = waiting.pop()
        nodes.append(_of_original_node(node, parent_place))
        waiting += [(child, len(nodes) - 1) for child in reversed(children.pop(node.node_id, []))]
    return Heritage(
        origin=path.name,
        summary=_preface(cleaned(model.kernel_summary or ""), "a run of K-Search"),
        open_questions=tuple(map(cleaned, model.open_questions or ())),
        nodes=tuple(nodes),
    )


def _of_original_node(node: _OriginalNode, parent: int) -> InheritedNode:
    action = node.action or _OriginalAction()
    result = (node.solution_ref or {}).get("eval")
    speedup = result.get("speedup_factor") if isinstance(result, dict) else None
    title = " ".join(cleaned(action.title or node.choice or node.node_id).split())
    return InheritedNode(
        parent=parent,
        title=title[:_MAX_TITLE] or "an action without a title",
        description=cleaned(action.description or "")[:_MAX_DESCRIPTION],
        difficulty=round(min(5, max(1, action.difficulty_1_to_5 or 3))),
        priority=min(1.0, max(0.0, 0.5 if action.score_0_to_1 is None else action.score_0_to_1)),
        earlier=f"{speedup:.2f}x in K-Search" if isinstance(speedup, int | float) else "not measured in K-Search",
    )
