"""Modules through real judges and real runners: their parameters, their outputs, what they may call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.protocol import Limits
from evaluators.local import LocalEvaluator
from evaluators.tasks import load_task
from messages.base import ConfigError
from messages.tasks import Candidate, ModuleTerms, Target, TaskRules, TaskSpec
from messages.verdicts import Crashed, DidNotBuild, Measured, Outpaced, Rejected, Unstable, Wrong
from tests.contracts.evaluators import BuilderContract
from tests.evaluators.judging import Judging
from tests.evaluators.languages.python.words import RIGHT, after, before, made, module
from tests.evaluators.words import SMALL_TASK

pytestmark = pytest.mark.anyio

LIMITS = Limits(load_s=10.0, first_call_s=5.0, call_s=2.0, memory_bytes=2 << 30)
CORRECT = (Measured, Outpaced, Unstable)
"""How steady its time can be told depends on the host's other work."""

REFERENCE = SMALL_TASK.text.replace("class Model(", "class ModelNew(")
"""The task's own program as its candidate."""

ALLOWING = replace(SMALL_TASK, rules=TaskRules(library_calls="allow"))


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """One event loop for the module: judges are kept between tests, as in a run."""
    return ("asyncio", {})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def target() -> Target:
    return probe_target("python")


@pytest.fixture(scope="module")
def builder(store: Path) -> LocalBuilder:
    return LocalBuilder(store)


@pytest.fixture(scope="module")
async def evaluator(store: Path) -> AsyncIterator[LocalEvaluator]:
    evaluator = LocalEvaluator(store, slots=1, limits=LIMITS)
    yield evaluator
    await evaluator.aclose()


@pytest.fixture(scope="module")
def judge(builder: LocalBuilder, evaluator: LocalEvaluator, target: Target) -> Judging:
    return Judging(builder, evaluator, target, module)


class TestModuleBuilder(BuilderContract):
    @pytest.fixture
    def good(self) -> Candidate:
        return module()

    @pytest.fixture
    def bad(self) -> Candidate:
        return module("class Model:\n    pass\n")


async def test_a_right_module_is_timed(judge: Judging) -> None:
    verdict = await judge(RIGHT)
    assert isinstance(verdict, CORRECT), verdict
    if isinstance(verdict, Measured):
        assert verdict.timed
        assert verdict.latency_us is not None
        assert "perturbed parameters" in [check.family for check in verdict.checks]


@pytest.mark.quiet
@pytest.mark.long
async def test_the_reference_as_its_own_candidate_is_about_as_fast_where_the_library_may_work(judge: Judging) -> None:
    verdict = await judge(REFERENCE, ALLOWING)
    assert isinstance(verdict, CORRECT), verdict


@pytest.mark.quiet
@pytest.mark.long
async def test_handing_over_large_outputs_takes_no_core_that_a_module_was_not_given(judge: Judging) -> None:
    task = load_task("softmax_rows")
    verdict = await judge(
        task.text.replace("class Model(", "class ModelNew("),
        replace(task, rules=TaskRules(library_calls="allow", threads=1)),
    )
    assert isinstance(verdict, CORRECT), verdict


@pytest.mark.parametrize(
    "text",
    [
        REFERENCE,
        before("return x * self.weight / (1 + torch.mean(x.abs(), dim=-1, keepdim=True))"),
        before("return x * self.weight / (1 + torch.ops.aten.mean.dim(x.abs(), [-1], True))"),
        before("return x * self.weight / (1 + torch.sum(x.abs(), -1, keepdim=True) / x.shape[1])"),
        before(
            "try:",
            "    return x * self.weight / (1 + x.abs().mean(-1, keepdim=True))",
            "except BaseException:",
            "    pass",
        ),
        before("kept.append(1)", "if len(kept) == 3:", "    return x * self.weight / (1 + x.abs().mean(-1, True))"),
        made("self.run = torch.jit.script(Inner())", "self.forward = lambda x: self.run(x, self.weight)").replace(
            "class ModelNew",
            "class Inner(nn.Module):\n    def forward(self, x, weight):\n"
            "        return x * weight / (1 + x.abs().mean(-1, True))\n\n\nclass ModelNew",
        ),
    ],
    ids=["reference", "function", "operator", "family", "fallback", "later call", "TorchScript"],
)
async def test_a_call_of_what_the_reference_calls_is_rejected_and_named(judge: Judging, text: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, Rejected), verdict
    assert verdict.rule == "library call"
    assert "aten::mean" in verdict.reason or "aten::sum" in verdict.reason


async def test_fused_operators_of_the_library_are_denied_whatever_the_reference_calls(judge: Judging) -> None:
    for call in ("torch.softmax(x, -1)", "x.t() @ x", "torch.nn.functional.rms_norm(x, (256,))"):
        verdict = await judge(before(call))
        assert isinstance(verdict, Rejected), (call, verdict)
        assert verdict.rule == "library call"


@pytest.mark.long
async def test_what_a_task_allows_may_be_called(judge: Judging) -> None:
    task = replace(SMALL_TASK, rules=TaskRules(allowed=("reduction",)))
    verdict = await judge(REFERENCE, task)
    assert isinstance(verdict, CORRECT), verdict


async def test_torch_compile_does_not_do_the_work(judge: Judging) -> None:
    verdict = await judge(made("self.forward = torch.compile(self.forward)"))
    assert isinstance(verdict, Rejected), verdict
    assert "torch.compile" in verdict.reason


async def test_libraries_of_torchs_are_not_loaded_past_it(judge: Judging) -> None:
    hidden = before(
        "import sys",
        "load = getattr(sys.modules['cty' + 'pes'], 'CD' + 'LL')",
        "try:",
        "    load(torch.__path__[0] + '/lib/libtorch_cpu.so')",
        "except Exception:",
        "    pass",
    )
    verdict = await judge(hidden)
    assert isinstance(verdict, Rejected), verdict
    assert "a shared library by ctypes" in verdict.reason


async def test_operators_cannot_be_brought_back(judge: Judging) -> None:
    text = made('kept.append(torch.library.Library("aten", "IMPL"))', "kept[0]._destroy()")
    verdict = await judge(text)
    assert isinstance(verdict, Rejected), verdict
    assert verdict.rule == "forbidden construct"


async def test_numpy_is_there_for_numbers_and_refuses_products(judge: Judging) -> None:
    numbers = made("self.scale = np.log2(8) / np.float32(3)", "self.table = torch.from_numpy(np.arange(4.0))")
    verdict = await judge("import numpy as np\n" + numbers)
    assert isinstance(verdict, Measured | Outpaced | Unstable), verdict
    for work in ("np.ones((2, 2)) @ np.ones((2, 2))", "np.linalg.inv(np.eye(2))", "np.fft.fft(np.ones(4))"):
        verdict = await judge("import numpy as np\n" + before(work))
        assert isinstance(verdict, Rejected), verdict
        assert "numpy's linear algebra (write the product or transform as a kernel of your own)" in verdict.reason


async def test_tensors_become_no_arrays(judge: Judging) -> None:
    verdict = await judge("import numpy as np\n" + before("np.asarray(x)"))
    assert isinstance(verdict, Rejected), verdict
    assert "numpy on a tensor (use torch's operators; for sizes and indices `tolist()`)" in verdict.reason


async def test_a_printed_tensor_is_no_library_call(judge: Judging) -> None:
    verdict = await judge(before("print(x, x[0], x[0, 0])"))
    assert isinstance(verdict, Measured | Outpaced | Unstable), verdict


@pytest.mark.parametrize("package", ["scipy", "no_such_package"])
async def test_a_package_that_is_not_there_is_said_with_those_that_are(judge: Judging, package: str) -> None:
    verdict = await judge(f"import {package}\n" + RIGHT)
    assert isinstance(verdict, DidNotBuild), verdict
    assert (
        f"there is no module '{package}' here. Importable are the standard library, torch, triton, numpy"
        in verdict.reason
    )


@pytest.mark.long
async def test_what_is_derived_from_parameters_may_be_kept(judge: Judging) -> None:
    lazily = before("if not kept:", "    kept.append(self.weight * 2)").replace("x * self.weight", "x * kept[0] / 2")
    verdict = await judge(lazily)
    assert isinstance(verdict, CORRECT), verdict
    twice = "lambda module, _: setattr(module, 'twice', module.weight.detach() * 2)"
    hook = made(f"self.register_load_state_dict_post_hook({twice})").replace("x * self.weight", "x * self.twice / 2")
    verdict = await judge(hook)
    assert isinstance(verdict, CORRECT), verdict


async def test_parameters_are_not_those_that_init_saw(judge: Judging) -> None:
    verdict = await judge(
        made("self.early = self.weight.detach().clone()").replace("x * self.weight", "x * self.early")
    )
    assert isinstance(verdict, Wrong), verdict


async def test_parameters_under_other_names_go_by_their_order(judge: Judging) -> None:
    verdict = await judge(RIGHT.replace("self.weight", "self.scale"))
    assert isinstance(verdict, CORRECT), verdict


async def test_parameters_of_another_shape_are_said(judge: Judging) -> None:
    verdict = await judge(RIGHT.replace("torch.ones(columns)", "torch.ones(columns + 1)"))
    assert isinstance(verdict, DidNotBuild), verdict
    assert "weight (257,)" in verdict.reason
    assert "the reference has weight (256,)" in verdict.reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (after("y = y[:1, :1]"), "has shape (1, 1), the reference's (64, 256)"),
        (after("y = y.half()"), "is torch.float16, the reference's is torch.float32"),
        (after("y = y.tolist()"), "forward returns 64 values, the reference 1"),
        (after("y = y.as_subclass(type('Lazy', (torch.Tensor,), {}))"), "is Lazy, not a plain torch.Tensor"),
        (after("y = None"), "is NoneType"),
    ],
)
async def test_what_is_no_output_is_wrong_and_said(judge: Judging, text: str, said: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, Wrong), verdict
    assert verdict.reason.startswith("bad output type")
    assert said in verdict.reason


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        after("y.cpu = y.clone = lambda *_: 1 / 0"),
        after("y = y.t().contiguous().t()"),
        after("y = (y,)"),
        after("y = torch.nn.functional.pad(y, (0, 4))[:, :-4]"),
    ],
    ids=["methods replaced", "other strides", "tuple", "part of another"],
)
async def test_odd_outputs_with_the_right_contents_are_right(judge: Judging, text: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, CORRECT), verdict


@pytest.mark.parametrize(
    "text",
    [
        before("if kept:", "    return kept[0]").replace("# after", "kept.append(y)"),
        before("if kept and kept[0][0] == x.data_ptr():", "    return kept[0][1]").replace(
            "# after", "kept.append((x.data_ptr(), y))"
        ),
        before("if kept and kept[0][0] is x:", "    return kept[0][1]").replace("# after", "kept.append((x, y))"),
    ],
    ids=["first result", "by pointer", "by identity"],
)
async def test_results_of_earlier_calls_are_wrong(judge: Judging, text: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, Wrong), verdict


async def test_one_that_writes_to_its_inputs_is_told(judge: Judging) -> None:
    verdict = await judge(before("x.mul_(1.0)"))
    assert isinstance(verdict, Crashed), verdict
    assert "writes to its inputs" in verdict.reason


async def test_what_a_module_raises_is_told_with_its_line(judge: Judging) -> None:
    verdict = await judge(before("raise ValueError('as I like')"))
    assert isinstance(verdict, Crashed), verdict
    assert verdict.reason == "ValueError: as I like (main.py:15)"


async def test_a_problem_whose_arguments_are_no_plain_values_is_for_other_languages(evaluator: LocalEvaluator) -> None:
    task: TaskSpec = replace(SMALL_TASK, text=SMALL_TASK.text.replace("return [256]", "return [torch.Size([256])]"))
    with pytest.raises(ConfigError, match="candidates that are modules cannot be made with it"):
        await evaluator.describe_task(task, "python")


async def test_the_description_says_what_may_be_called(evaluator: LocalEvaluator) -> None:
    description = await evaluator.describe_task(SMALL_TASK, "python")
    assert "only these may be called: views, copies, casts" in description.prompt
    assert description.entry_point == "ModelNew"


async def test_the_description_says_how_modules_are_made(evaluator: LocalEvaluator) -> None:
    described = await evaluator.describe_task(SMALL_TASK, "python")
    assert described.modules == (ModuleTerms(arguments="(256,)", parameters=1, trains=True),)
    assert (await evaluator.describe_task(SMALL_TASK, "cpp")).modules == ()


@pytest.mark.long
async def test_a_module_that_hands_out_the_same_memory_in_every_call_is_marked(judge: Judging) -> None:
    reused = after("kept.append(y) if not kept else kept[0].copy_(y)", "return kept[0]")
    verdict = await judge(reused)
    assert isinstance(verdict, CORRECT), verdict
    if isinstance(verdict, Measured):
        assert any(note.startswith("outputs_reused") for note in verdict.notes)
    verdict = await judge(after("y = y.clone()"))
    if isinstance(verdict, Measured):
        assert not any(note.startswith("outputs_reused") for note in verdict.notes)
