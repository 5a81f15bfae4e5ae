"""Modules with Triton kernels inside: each is compiled when the module is built, and found when it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.languages import support_of
from evaluators.languages.base import CalledWith
from evaluators.languages.python.ahead import calls_of, plan_ahead
from evaluators.runners.kernels import KERNELS, seed_cache
from messages.calls import CallForm, Calling, ConstantPlace, DictOf, ListOf, TensorPlace, TupleOf
from messages.commands import BuildCandidate
from messages.events import Built
from messages.tasks import Candidate, ModuleTerms, SourceFile, Target, TensorSpec
from messages.verdicts import DidNotBuild

pytestmark = pytest.mark.anyio

H200 = Target(arch="sm_90", march="", toolchain="", device="NVIDIA H200")

MODULE = """
import os
import time

import torch
import triton
from torch import nn

from kernels import scale, store_scaled


class ModelNew(nn.Module):
    def __init__(self, columns, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        # made

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        # before
        scale[(rows,)](x, self.weight, y, columns, BLOCK=triton.next_power_of_2(columns))
        # after
        return y
"""
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + tl.program_id(0) * columns + offsets, mask=mask)
    y = x * tl.load(weight_ptr + offsets, mask=mask)
    # kernel
    tl.store(y_ptr + tl.program_id(0) * columns + offsets, y, mask=mask)


@triton.jit
def store_scaled(from_ptr, to_ptr, factor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(to_ptr + offsets, factor * tl.load(from_ptr + offsets))


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (64, 128, 256)], key=[], cache_results=True)
@triton.jit
def fill(to_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + offsets, 1.0, mask=offsets < size)
"""
_AGAIN = """
import sys
sys.path.insert(0, sys.argv[1])
import json
import torch
from triton import knobs
from triton.runtime.jit import JITFunction
from evaluators.languages.triton.absent import pretend_gpu

hits = []
knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
launch = JITFunction.run
JITFunction.run = lambda kernel, *args, **options: launch(kernel, *args, **{**options, "warmup": True})
with pretend_gpu(90), torch.no_grad():
    from main import ModelNew

    for columns in json.loads(sys.argv[2]):
        ModelNew(columns).cuda()(torch.empty(64, columns, device="cuda"))
print(json.dumps([bool(hit) for hit in hits]))
"""
"""What a runner does, with Triton's own compiler: says of each kernel whether it was there."""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def builder(artifacts: Path) -> Iterator[LocalBuilder]:
    """One for all tests, as in a run: its warm process imports torch once."""
    builder = LocalBuilder(artifacts)
    yield builder
    builder.close()


def module(text: str = MODULE, kernel: str = KERNEL) -> Candidate:
    files = (SourceFile(path="main.py", text=text), SourceFile(path="kernels.py", text=kernel))
    return Candidate(language="python", entry_point="ModelNew", files=files)


def before(*lines: str) -> Candidate:
    return module(MODULE.replace("# before", "\n        ".join(lines)))


def after(*lines: str) -> Candidate:
    return module(MODULE.replace("# after", "\n        ".join(lines)))


def inside(line: str) -> Candidate:
    return module(kernel=KERNEL.replace("# kernel", line))


def tensors(columns: int) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec(name="x", role="input", shape=(64, columns), dtype="float32"),
        TensorSpec(name="weight", role="parameter", shape=(columns,), dtype="float32"),
        TensorSpec(name="output", role="output", shape=(64, columns), dtype="float32"),
    )


def job(candidate: Candidate, *columns: int) -> BuildCandidate:
    """A build for workloads of so many columns each, by default one of 256."""
    first, *others = columns or (256,)
    return BuildCandidate(
        job_id="j1",
        run_id="r1",
        candidate=candidate,
        target=support_of("python", "cuda").probe_builder(H200),
        tensors=tensors(first),
        other_tensors=tuple(map(tensors, others)),
        modules=tuple(ModuleTerms(arguments=f"({each},)", parameters=1) for each in (first, *others)),
    )


async def built(builder: LocalBuilder, build: BuildCandidate) -> Built:
    outcome = (await builder.build(build)).outcome
    assert isinstance(outcome, Built), outcome
    return outcome


async def refusal(builder: LocalBuilder, build: BuildCandidate) -> DidNotBuild:
    outcome = (await builder.build(build)).outcome
    assert isinstance(outcome, DidNotBuild), outcome
    return outcome


def kept(artifacts: Path, outcome: Built) -> list[str]:
    """Names of the compiled kernels in an artifact."""
    return sorted(path.stem for path in artifact_folder(artifacts, outcome.artifact_id).rglob("*.cubin"))


def called_again(artifact: Path, cache: Path, *columns: int) -> list[bool]:
    """Call the artifact's module in a new process. Returns of each kernel whether it was in the cache."""
    done = subprocess.run(
        [sys.executable, "-c", _AGAIN, str(artifact), json.dumps(columns)],
        env={**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[bool] = json.loads(done.stdout)
    return found


async def test_what_the_build_compiled_for_each_workload_is_not_compiled_by_the_first_call(
    builder: LocalBuilder, artifacts: Path, tmp_path: Path
) -> None:
    artifact = artifact_folder(artifacts, (await built(builder, job(module(), 256, 1000))).artifact_id)
    seed_cache(str(artifact / KERNELS), str(tmp_path))
    assert called_again(artifact, tmp_path, 256, 1000, 100) == [True, True, False]


async def test_without_it_everything_is_compiled(builder: LocalBuilder, artifacts: Path, tmp_path: Path) -> None:
    artifact = artifact_folder(artifacts, (await built(builder, job(module(), 256, 1000))).artifact_id)
    assert called_again(artifact, tmp_path, 256, 1000) == [False, False]


async def test_the_log_tells_what_each_kernel_needs(builder: LocalBuilder) -> None:
    twice = "store_scaled[(1,)](y, y, 2.0, BLOCK=64)"
    log = (await built(builder, job(after(twice, twice)))).log.splitlines()
    assert [line.partition(":")[0] for line in log] == ["kernel scale", "kernel store_scaled"]
    assert "registers, 0 bytes spilled, 0 bytes of shared memory, 4 warps, 3 stages" in log[0]


async def test_the_second_call_is_made_too_and_after_the_state_was_loaded(
    builder: LocalBuilder, artifacts: Path
) -> None:
    text = MODULE.replace(
        "# made",
        """self.register_load_state_dict_post_hook(lambda own, _: own.pack())

    def pack(self):
        self.packed = torch.empty_like(self.weight)
        store_scaled[(1,)](self.weight, self.packed, 2.0, BLOCK=64)
""",
    ).replace(
        "# after",
        """if hasattr(self, "seen"):
            store_scaled[(1,)](x, y, 2.0, BLOCK=128)
        self.seen = True""",
    )
    outcome = await built(builder, job(module(text)))
    assert kept(artifacts, outcome) == ["scale", "store_scaled", "store_scaled"]


async def test_all_configurations_that_would_be_tried_are_compiled_and_none_is_called_the_best(
    builder: LocalBuilder, artifacts: Path
) -> None:
    text = MODULE.replace("import scale", "import fill, scale").replace("# after", "fill[(1,)](y, y.numel())")
    outcome = await built(builder, job(module(text)))
    assert kept(artifacts, outcome) == ["fill", "fill", "fill", "scale"]
    assert not [*artifact_folder(artifacts, outcome.artifact_id).rglob("*.autotune.json")]


async def test_what_is_launched_on_a_stream_or_captured_in_a_graph_is_compiled(
    builder: LocalBuilder, artifacts: Path
) -> None:
    captured = """side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            store_scaled[(1,)](x, y, 2.0, BLOCK=64)
        torch.cuda.current_stream().wait_event(side.record_event())
        with torch.cuda.graph(graph, stream=side):
            store_scaled[(1,)](x, y, 2.0, BLOCK=128)
        graph.replay()"""
    outcome = await built(builder, job(after(captured)))
    assert kept(artifacts, outcome) == ["scale", "store_scaled", "store_scaled"]
    assert "not compiled ahead" not in outcome.log


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("if x.sum() > 0: y = -y", "RuntimeError: Tensor.item() cannot be called on meta tensors"),
        ("torch.cuda.get_device_properties(0).uuid", "has no attribute 'uuid'"),
        ("raise ValueError('no luck')", "ValueError: no luck (main.py:23)"),
        ("os._exit(3)", "without a GPU its call ends the process (exit code 3)"),
        ("os.kill(os.getpid(), 11)", "without a GPU its call ends the process (signal 11)"),
        ("store_scaled[(1,)](y, torch.empty(64), 2.0, BLOCK=64)", "cannot be accessed from Triton (cpu tensor?)"),
    ],
)
async def test_what_cannot_be_called_without_a_gpu_is_built_and_what_was_compiled_is_kept(
    builder: LocalBuilder, artifacts: Path, statement: str, why: str
) -> None:
    outcome = await built(builder, job(after(statement)))
    *kernels, last = outcome.log.splitlines()
    assert last.startswith("not compiled ahead: ")
    assert why in last
    if "process" not in why:
        assert len(kernels) == len(kept(artifacts, outcome)) == 1


@pytest.mark.long
def test_a_module_that_waits_is_given_up_and_what_was_compiled_is_kept(tmp_path: Path) -> None:
    candidate, target = after("time.sleep(600)"), job(module()).target
    calls = calls_of((CalledWith(tensors=tensors(256), module=ModuleTerms(arguments="(256,)", parameters=1)),))
    plan = plan_ahead(candidate, target, calls, None)
    told = json.loads(plan.command[-1]) | {"limit_s": 0.0}
    for file in candidate.files:
        (tmp_path / file.path).write_text(file.text, encoding="utf-8")
    done = subprocess.run(
        [*plan.command[:-1], json.dumps(told)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "not compiled ahead: its first calls do not end without a GPU\n"


@pytest.mark.parametrize(
    "candidate",
    [module("import torch\nimport triton\nfrom nothing import ModelNew\n"), module(MODULE.replace("nn.Module", ""))],
)
async def test_what_cannot_be_made_is_left_to_the_runner_to_tell(builder: LocalBuilder, candidate: Candidate) -> None:
    assert (await built(builder, job(candidate))).log.startswith("not compiled ahead: ")


async def test_an_error_in_a_kernel_that_every_call_runs_into_is_told_with_its_place(builder: LocalBuilder) -> None:
    outcome = await refusal(builder, job(inside("y = y + tl.zeros((3,), tl.float32)")))
    assert "Shape element 0 must be a power of 2" in outcome.reason
    assert outcome.reason.endswith("(kernels.py:12)")
    assert "y = y + tl.zeros((3,), tl.float32)" in outcome.log


@pytest.mark.parametrize("then", ["", "; raise ValueError"])
async def test_an_error_in_a_kernel_that_the_module_catches_is_none(
    builder: LocalBuilder, artifacts: Path, then: str
) -> None:
    launch = "scale[(rows,)](x, self.weight, y, columns, BLOCK=triton.next_power_of_2(columns))"
    other = f"store_scaled[(1,)](x, y, 2.0, BLOCK=64){then}"
    text = MODULE.replace(launch, f"try:\n            {launch}\n        except Exception:\n            {other}")
    outcome = await built(builder, job(module(text, KERNEL.replace("# kernel", "y = missing(y)"))))
    assert kept(artifacts, outcome) == ["store_scaled"]


async def test_what_is_told_of_a_kernel_does_not_depend_on_an_error_in_another(builder: LocalBuilder) -> None:
    launch = "scale[(rows,)](x, self.weight, y, columns, BLOCK=triton.next_power_of_2(columns))"
    good = "store_scaled[(1,)](x, y, 2.0, BLOCK=64)"
    alone = await built(builder, job(module(MODULE.replace(launch, good))))
    caught = f"{good}\n        try:\n            {launch}\n        except Exception:\n            pass"
    beside = await built(builder, job(module(MODULE.replace(launch, caught), KERNEL.replace("# kernel", "y = no(y)"))))
    assert beside.log == alone.log
    assert " registers" in alone.log
    assert "None" not in alone.log


async def test_a_kernel_that_no_gpu_can_load_is_told_and_left_to_the_runner(builder: LocalBuilder) -> None:
    tile = "tl.load(x_ptr + tl.arange(0, 64)[:, None] * 512 + tl.arange(0, 512)[None, :])"
    large = f"tile = {tile}; y += tl.sum(tl.dot(tile, tl.trans(tile)))"
    small = support_of("python", "cuda").probe_builder(replace(H200, arch="sm_89"))
    log = (await built(builder, replace(job(inside(large)), target=small))).log
    assert log.startswith("kernel scale: needs ")
    assert "bytes of shared memory; a block of sm_89 may have 101376" in log


async def test_a_module_without_triton_is_only_read(builder: LocalBuilder) -> None:
    text = "from torch import nn\n\n\nclass ModelNew(nn.Module):\n    raise ValueError\n"
    candidate = Candidate(language="python", entry_point="ModelNew", files=(SourceFile(path="main.py", text=text),))
    assert (await built(builder, job(candidate))).log == ""


async def test_without_what_it_is_made_with_a_module_is_only_read(builder: LocalBuilder, artifacts: Path) -> None:
    outcome = await built(builder, replace(job(module()), modules=()))
    assert (outcome.log, kept(artifacts, outcome)) == ("", [])


async def test_what_is_no_python_is_told_before_anything_is_called(builder: LocalBuilder) -> None:
    assert (await refusal(builder, job(module("import triton\nwhile\n")))).reason.startswith("SyntaxError: ")


async def test_other_workloads_make_another_artifact(builder: LocalBuilder) -> None:
    first, other = [(await built(builder, job(module(), columns))).artifact_id for columns in (256, 128)]
    more = (await built(builder, job(module(), 256, 128))).artifact_id
    made = replace(job(module()), modules=(ModuleTerms(arguments="(256, False)", parameters=1),))
    assert len({first, other, more, (await built(builder, made)).artifact_id}) == 4


@pytest.mark.parametrize(("calling", "behind"), [("function", ""), ("destination", ", y")])
async def test_a_function_is_called_with_a_nest_of_tensors_and_numbers(
    builder: LocalBuilder, artifacts: Path, calling: Calling, behind: str
) -> None:
    text = f"""
import torch
from kernels import store_scaled  # in Triton


def scaled(given, factor{behind}):
    assert (len(given["x"]), factor) == (1, 2.0)
    store_scaled[(1,)](given["x"][0], {behind[2:] or "torch.empty(64, device='cuda')"}, factor, BLOCK=64)
"""
    nest = DictOf(keys=("x",), items=(ListOf(items=(TensorPlace(),)),))
    arguments = TupleOf(items=(nest, ConstantPlace(value=2.0)))
    form = CallForm(calling=calling, arguments=arguments, outputs=TensorPlace())
    function = replace(module(text), entry_point="scaled")
    build = replace(job(function), tensors=(tensors(256)[0], tensors(256)[2]), modules=(), calls=(form,))
    outcome = await built(builder, build)
    assert kept(artifacts, outcome) == ["store_scaled"]
    assert "not compiled ahead" not in outcome.log
