"""What a run begins with that was found before: a run's tree and candidates, files, and the original's world model."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, in_order
from ksearch_async.runs.folder import RunFolder, read_run
from ksearch_async.runs.warm_start import MAX_CANDIDATES_BYTES, read_heritage, read_solution
from ksearch_async.settings.run_config import ContinueSettings, RunConfig
from messages.base import ConfigError
from messages.settings import Heritage
from messages.tasks import Target, TaskSpec
from tests.ksearch_async.leading import lead
from tests.ksearch_async.stories import TARGET, TASK

pytestmark = pytest.mark.anyio


@pytest.fixture
async def earlier(tmp_path: Path) -> RunFolder:
    """A finished run."""
    folder = RunFolder(tmp_path / "earlier")
    await lead(folder, 5, latency_s=0)
    return folder


def config(runs_dir: Path, *, solution: str | None = None, world_model: str | None = None) -> RunConfig:
    begin = ContinueSettings(solution=solution, world_model=world_model)
    return RunConfig(task="relu.py", runs_dir=str(runs_dir), continue_from=begin)


def heritage(runs_dir: Path, name: str, *, task: TaskSpec = TASK, target: Target = TARGET) -> Heritage:
    found = read_heritage(config(runs_dir, world_model=name), task, target)
    assert found is not None
    return found


async def test_a_tree_of_the_same_task_and_device_brings_its_candidates(earlier: RunFolder, tmp_path: Path) -> None:
    state = read_run(earlier).state
    found = heritage(tmp_path, "earlier")
    kept = [node for node in in_order(state.nodes)[1:] if node.origin == "model" or node.best]
    assert [node.title for node in found.nodes] == [node.title for node in kept]
    carried = {node.title: node.candidate.candidate_id for node in found.nodes if node.candidate}
    assert carried == {node.title: node.best.candidate_id for node in state.nodes.values() if node.best}
    best = max(found.nodes, key=lambda node: node.priority)
    assert best.candidate is not None
    assert "on AMD EPYC" in best.earlier


@pytest.mark.parametrize(
    ("task", "target"),
    [
        (msgspec.structs.replace(TASK, text="class Model: # another"), TARGET),
        (TASK, msgspec.structs.replace(TARGET, device="NVIDIA H200")),
        (TASK, msgspec.structs.replace(TARGET, toolchain="g++ 15")),
    ],
    ids=["another task", "another device", "another toolchain"],
)
async def test_elsewhere_its_results_are_history_and_no_candidate_comes_along(
    task: TaskSpec, target: Target, earlier: RunFolder, tmp_path: Path
) -> None:
    found = heritage(tmp_path, str(earlier.path), task=task, target=target)
    assert found.nodes
    assert all(node.candidate is None for node in found.nodes)
    assert any(node.earlier.startswith("2.00x") for node in found.nodes)


async def test_auto_is_the_latest_run_of_the_task(earlier: RunFolder, tmp_path: Path) -> None:
    other = msgspec.structs.replace(TASK, text="class Model: # another")
    assert heritage(tmp_path, "auto").origin == "earlier"
    with pytest.raises(ConfigError, match="has a world model of this task"):
        heritage(tmp_path, "auto", task=other)


async def test_a_snapshot_is_read_as_history(earlier: RunFolder, tmp_path: Path) -> None:
    snapshot = earlier.path / "world_model" / "latest.json"
    found = heritage(tmp_path, str(snapshot))
    told = json.loads(snapshot.read_text())["nodes"]
    assert len(found.nodes) == sum(node["origin"] == "model" for node in told[1:])
    assert all(node.candidate is None for node in found.nodes)


async def test_what_it_brings_is_bounded(earlier: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_CANDIDATES_BYTES < 8 << 20, "it travels in one event"
    monkeypatch.setattr("ksearch_async.runs.warm_start.MAX_CANDIDATES_BYTES", 100)
    monkeypatch.setattr("ksearch_async.runs.warm_start.MAX_NODES", 3)
    found = heritage(tmp_path, "earlier")
    assert len(found.nodes) == 3
    assert sum(node.candidate is not None for node in found.nodes) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no world model"),
        (b"[" * 100_000, "is no world model"),
        (b'{"decision_tree": 3}', "is no world model"),
        (b'{"nodes": []}', "is no world model"),
        (b"\xff\xfe", "is no world model"),
    ],
)
def test_what_is_no_world_model_is_bad_input(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "wm.json").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        heritage(tmp_path, str(tmp_path / "wm.json"))


def test_a_name_of_nothing_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run and no file 'lately'"):
        heritage(tmp_path, "lately")


ORIGINAL = {
    "kernel_summary": "Bound by\x1b[31m memory.",
    "open_questions": ["Which tile?"],
    "decision_tree": {
        "root_id": "root",
        "active_leaf_id": "a",
        "nodes": [
            {"node_id": "b", "parent_id": "a", "choice": None, "action": {"title": "Tile", "score_0_to_1": 7.5}},
            {"node_id": "root", "parent_id": None, "decision": None, "choice": None},
            {
                "node_id": "a",
                "parent_id": "root",
                "action": {"title": "Fuse", "description": "All.", "difficulty_1_to_5": 2, "score_0_to_1": 0.7},
                "solution_ref": {"solution_id": "s", "eval": {"status": "passed", "speedup_factor": 1.5}},
            },
            {"node_id": "c", "parent_id": "gone", "choice": "Vectorise", "action": None, "solution_ref": None},
            {"node_id": "loop", "parent_id": "loop2", "choice": "x"},
            {"node_id": "loop2", "parent_id": "loop", "choice": "y"},
        ],
    },
}


def test_a_world_model_of_the_original_is_taken_up_and_its_results_are_history(tmp_path: Path) -> None:
    (tmp_path / "wm.json").write_text(json.dumps(ORIGINAL))
    found = heritage(tmp_path, str(tmp_path / "wm.json"))
    assert "\x1b" not in found.summary
    told = [(node.parent, node.title, node.difficulty, node.priority, node.earlier) for node in found.nodes]
    assert told == [
        (-1, "Fuse", 2, 0.7, "1.50x in K-Search"),
        (0, "Tile", 3, 1.0, "not measured in K-Search"),
        (-1, "Vectorise", 3, 0.5, "not measured in K-Search"),
    ]


async def test_a_solution_is_a_file_a_folder_or_a_run(earlier: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "mine.cpp").write_text("// mine")
    mine = read_solution(config(tmp_path, solution=str(tmp_path / "mine.cpp")))
    assert mine is not None
    assert mine.files[0].text == "// mine"
    best = read_solution(config(tmp_path, solution=str(earlier.best)))
    assert best is not None
    assert read_solution(config(tmp_path, solution="earlier")) == best
    assert read_solution(config(tmp_path, solution=str(earlier.path))) == best
    assert read_solution(config(tmp_path)) is None


def test_a_solution_in_another_language_or_too_long_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "mine.cu").write_text("// mine")
    with pytest.raises(ConfigError, match="is written in cuda, and the run's language is cpp"):
        read_solution(config(tmp_path, solution=str(tmp_path / "mine.cu")))
    (tmp_path / "long.cpp").write_text("x" * (1 << 20))
    with pytest.raises(ConfigError, match="is too long"):
        read_solution(config(tmp_path, solution=str(tmp_path / "long.cpp")))
    with pytest.raises(ConfigError, match="cannot read"):
        read_solution(config(tmp_path, solution=str(tmp_path / "none.cpp")))


async def test_an_inherited_tree_opens_a_run(earlier: RunFolder, tmp_path: Path) -> None:
    started = read_run(earlier).started
    assert started is not None
    state = SearchState()
    for fact in decide(state, msgspec.structs.replace(started, heritage=heritage(tmp_path, "earlier"))):
        state = evolve(state, fact)
    assert len(state.nodes) == 1 + len(heritage(tmp_path, "earlier").nodes)
    (branch,) = state.branches.values()
    assert state.node(branch.node_id).given_id is not None
