"""Definitions and workloads of a set become tasks; nothing of them is run."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch

from evaluators.tasks import load_task
from evaluators.tasks.flashinfer.reading import read_task, recognizes, tolerance_of
from evaluators.tasks.flashinfer.trace_set import read_definition
from messages.base import ConfigError
from messages.tasks import TaskSpec
from tests.contracts.task_sources import MARK, TaskSourceContract
from tests.evaluators.tasks.flashinfer import sets


class TestFlashInfer(TaskSourceContract):
    """The contract of task sources."""

    source = "flashinfer"

    @pytest.fixture
    def selector(self, tmp_path: Path) -> str:
        reference = f"open({str(tmp_path / MARK)!r}, 'w')\n" + sets.REFERENCE
        return f"{sets.written(tmp_path, changed={'reference': reference})}#{sets.NAME}"

    @pytest.fixture(params=["json", "reference", "axis", "constraint", "unknown integers", "sampling", "line", "name"])
    def broken(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, tuple[str, ...]]:
        folder = sets.written(tmp_path)
        path = f"gqa_paged/{sets.NAME}.json"
        selector = f"{folder}#{sets.NAME}"
        match request.param:
            case "json":
                (folder / "definitions" / path).write_text("{")
                return selector, (path,)
            case "reference":
                sets.written(tmp_path, changed={"reference": "def go():\n    pass\n"})
                return selector, (path, "run")
            case "axis":
                output = {"output": {"shape": ["rows"], "dtype": "float32"}}
                sets.written(tmp_path, changed={"outputs": output})
                return selector, ("output", "rows")
            case "constraint":
                sets.written(tmp_path, changed={"constraints": ["len_indptr == batch_size"]})
                return selector, ("'one'", "line 1", "len_indptr == batch_size")
            case "unknown integers":
                inputs = sets.definition()["inputs"] | {"colours": {"shape": ["batch_size"], "dtype": "int32"}}
                sets.written(tmp_path, changed={"inputs": inputs})
                return selector, ("colours", "blob")
            case "sampling":
                sets.written(tmp_path, changed={"op_type": "sampling"})
                return selector, ("samples", "probs")
            case "line":
                (folder / "workloads" / f"{path}l").write_text(json.dumps(sets.workload("one")) + "\n{\n")
                return selector, ("line 2",)
            case _:
                return f"{folder}#gather_decode_h2_d61", ("did you mean", sets.NAME)


def made(task: TaskSpec, number: int = 0, seed: int = 0) -> tuple[dict[str, Any], list[Any]]:
    """Run a problem's file as the judge does; return its names and the inputs of a workload."""
    names: dict[str, Any] = {}
    for file in task.files:
        module = ModuleType(file.path.removesuffix(".py"))
        sys.modules[module.__name__] = module
        exec(compile(file.text, file.path, "exec"), module.__dict__)  # noqa: S102 - as the judge does
    exec(compile(task.text, task.name, "exec"), names)  # noqa: S102 - as the judge does
    torch.manual_seed(seed)
    return names, names["get_inputs"](**task.workloads[number].dimensions)


def test_five_workloads_are_drawn_and_the_name_says_how_to_draw_them_again(tmp_path: Path) -> None:
    selector = f"{sets.written(tmp_path)}#{sets.NAME}"
    task = read_task(selector)
    assert len(task.workloads) == 5
    assert task.name == f"{sets.NAME}:draw=5,seed=0"
    assert read_task(f"{selector}:draw=5,seed=0").workloads == task.workloads
    drawn = {tuple(one.name for one in read_task(f"{selector}:draw=2,seed={seed}").workloads) for seed in range(9)}
    assert len(drawn) > 1


def test_some_workloads_may_be_held_out(tmp_path: Path) -> None:
    task = read_task(f"{sets.written(tmp_path)}#{sets.NAME}:draw=3,hidden=2,seed=4")
    assert (len(task.shown), len(task.hidden)) == (3, 2)
    assert len({one.name for one in task.workloads}) == 5


@pytest.mark.parametrize(
    ("selection", "names"),
    [("all", list(sets.LENGTHS)), ("two,fi", ["two", "five"]), ("small", ["small-1", "small-2"])],
)
def test_workloads_are_chosen_behind_a_colon(selection: str, names: list[str], tmp_path: Path) -> None:
    task = load_task(f"{sets.written(tmp_path)}#{sets.NAME}:{selection}")
    assert [one.name for one in task.workloads] == names


@pytest.mark.parametrize(
    ("selection", "said"),
    [("seven", "no workload 'seven'"), ("t", "2 workloads"), ("draw=9", "6 workloads"), ("draw=x", "'draw=x'")],
)
def test_workloads_that_are_not_there_are_refused(selection: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        read_task(f"{sets.written(tmp_path)}#{sets.NAME}:{selection}")


def test_a_set_without_a_definition_behind_it_says_which_there_are(tmp_path: Path) -> None:
    folder = sets.written(tmp_path)
    assert recognizes(folder)
    with pytest.raises(ConfigError, match=f"1 definitions.*{sets.NAME}"):
        load_task(str(folder))
    definition = folder / "definitions" / "gqa_paged" / f"{sets.NAME}.json"
    assert load_task(f"{definition}:all").name == f"{sets.NAME}:all"


def test_the_folder_may_be_named_by_upstreams_variable(tmp_path: Path) -> None:
    folder = sets.written(tmp_path)
    assert read_task(f"#{sets.NAME}", {"FIB_DATASET_PATH": str(folder)}).source == "flashinfer"
    with pytest.raises(ConfigError, match="FIB_DATASET_PATH"):
        read_task(f"#{sets.NAME}", {})


def test_page_tables_are_made_up_so_that_the_reference_can_follow_them(tmp_path: Path) -> None:
    task = read_task(f"{sets.written(tmp_path)}#{sets.NAME}:all")
    assert "Not recorded, drawn instead: `kv_indptr`, `kv_indices`" in task.notes
    for number, workload in enumerate(task.workloads):
        names, inputs = made(task, number)
        pages, indices = workload.dimensions["num_pages"], workload.dimensions["num_kv_indices"]
        q, cache, kv_indptr, kv_indices, sm_scale = inputs
        assert (kv_indptr[0], kv_indptr[-1], kv_indptr.dtype) == (0, indices, torch.int32)
        assert bool((kv_indptr.diff() >= 0).all())
        assert kv_indices.unique().numel() == indices
        assert bool((kv_indices < pages).all())
        assert (sm_scale, type(sm_scale)) == (1.0, float)
        output, lse = names["Model"]()(*inputs)
        assert output.shape == q.shape
        assert bool(lse.isneginf().any()) == (workload.name == "six")
        assert cache.shape == (pages, 16)


def test_every_draw_has_as_much_to_do_in_another_order(tmp_path: Path) -> None:
    task = read_task(f"{sets.written(tmp_path)}#{sets.NAME}:three")
    draws = [made(task, seed=seed)[1][2].diff().tolist() for seed in range(12)]
    assert len({tuple(sorted(draw)) for draw in draws}) == 1
    assert len({tuple(draw) for draw in draws}) > 1


def test_causal_sequences_have_at_least_as_many_keys_as_queries(tmp_path: Path) -> None:
    name = "ragged_prefill_causal"
    argument = {"shape": ["len_indptr"], "dtype": "int32"}
    changed = {
        "name": name,
        "op_type": "gqa_ragged",
        "axes": {axis: {"type": "var"} for axis in ("total_q", "total_kv", "len_indptr")},
        "constraints": ["total_q == qo_indptr[-1].item()", "total_kv == kv_indptr[-1].item()"],
        "inputs": {"qo_indptr": argument, "kv_indptr": argument},
        "outputs": {"y": {"shape": ["total_q"], "dtype": "float32"}},
        "reference": "def run(qo_indptr, kv_indptr):\n    return qo_indptr\n",
    }
    folder = sets.written(tmp_path, changed=changed, uuids=())
    definitions = folder / "definitions" / "gqa_paged"
    (definitions / f"{sets.NAME}.json").rename(definitions / f"{name}.json")
    task = read_task(f"{folder}#{name}:small")
    for seed in range(5):
        queries, keys = made(task, seed=seed)[1]
        assert bool((keys.diff() >= queries.diff()).all())
        assert keys[-1] == task.workloads[0].dimensions["total_kv"]


def test_low_bit_mixtures_of_experts_alone_are_held_to_a_matched_ratio(tmp_path: Path) -> None:
    definition = read_definition(sets.written(tmp_path), sets.NAME)
    low_bit = msgspec.structs.replace(definition, name="moe_fp8_block_scale_renorm_topk8", op_type="moe")
    assert tolerance_of(low_bit).profile == "flashinfer:0.95"
    assert tolerance_of(msgspec.structs.replace(definition, op_type="moe")).profile == "flashinfer"


def test_constraints_lead_to_small_sizes_that_keep_them(tmp_path: Path) -> None:
    constraints = ["len_indptr == batch_size + 1", "num_pages >= 100", "num_kv_indices <= num_pages"]
    folder = sets.written(tmp_path, changed={"constraints": constraints}, uuids=())
    task = read_task(f"{folder}#{sets.NAME}:small")
    for workload in task.workloads:
        sizes = workload.dimensions
        assert isinstance(sizes["batch_size"], int)
        assert sizes["len_indptr"] == sizes["batch_size"] + 1
        assert int(sizes["num_pages"]) >= 100


def write_recorded(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Write a safetensors file of one-dimensional integers, by the format's own page."""
    header, content = {}, b""
    for name, (dtype, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{'i' if dtype == 'I32' else 'q'}", *values)
        header[name] = {"dtype": dtype, "shape": [len(values)], "data_offsets": [len(content), len(content + packed)]}
        content += packed
    words = json.dumps(header).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(words)) + words + content)


def test_recorded_tensors_travel_with_the_task(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    folder = sets.written(tmp_path)
    indptr, indices = [0, 3, 3, 7], [6, 0, 2, 8, 7, 1, 3]
    write_recorded(folder / "blob" / "one.safetensors", {"kv_indptr": ("I32", indptr), "kv_indices": ("I32", indices)})
    task = read_task(f"{folder}#{sets.NAME}:one")
    assert "drawn instead" not in task.notes
    inputs = made(task)[1]
    assert (inputs[2].tolist(), inputs[3].tolist()) == (indptr, indices)
    assert task.shown_files == ("drawn_inputs.py",)
    assert inputs[3].dtype == torch.int32
    with pytest.raises(ConfigError, match=r"2 of 4 recorded tensors .*two\.safetensors"):
        read_task(f"{folder}#{sets.NAME}:one,two")


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"kv_indptr": ("I32", [0, 3, 3, 6])}, "no tensor 'kv_indices'"),
        ({"kv_indptr": ("I64", [0, 3, 3, 7]), "kv_indices": ("I32", [0] * 7)}, "'kv_indptr' must be int32"),
        ({"kv_indptr": ("I32", [0, 3, 7]), "kv_indices": ("I32", [0] * 7)}, "'kv_indptr' must be int32"),
        ({"kv_indptr": ("I32", [0, 3, 3, 6]), "kv_indices": ("I32", [0] * 7)}, "breaks the constraint"),
    ],
)
def test_recorded_tensors_that_do_not_fit_are_refused(
    tensors: dict[str, tuple[str, list[int]]], said: str, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    folder = sets.written(tmp_path)
    write_recorded(folder / "blob" / "one.safetensors", tensors)
    with pytest.raises(ConfigError, match=said):
        read_task(f"{folder}#{sets.NAME}:one")


def test_what_git_lfs_leaves_in_a_files_place_counts_as_not_there(tmp_path: Path) -> None:
    folder = sets.written(tmp_path)
    (folder / "blob").mkdir()
    (folder / "blob" / "one.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    assert "drawn instead" in read_task(f"{folder}#{sets.NAME}:one").notes
