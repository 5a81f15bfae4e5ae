"""A problem's own code: what it may import, what its functions may take and return."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import pytest
import torch

from evaluators.judge.data.families import DataMaker
from evaluators.judge.description import describe_problem
from evaluators.judge.intake.examining import wrong_share
from evaluators.judge.reference.problem import Problem, ProblemError
from messages.base import Language
from messages.calls import CallForm, Calling, DictOf, TensorPlace, TupleOf, leaves_of
from messages.tasks import SourceFile, TaskSpec, Tolerance

NESTED = """
import torch
from torch import nn
from tools.sums import weighted


class Model(nn.Module):
    def forward(self, data, scale, *, twice=False):
        assert isinstance(data, dict) and isinstance(data["pair"], tuple)
        x, mask = data["pair"]
        return {"sum": weighted(x, data["w"], scale, data["eps"]), "rest": [x * mask]}


def get_inputs():
    mask = torch.randint(0, 2, (4, 8))
    return [{"pair": (torch.rand(4, 8), mask), "w": torch.rand(8), "eps": 1e-3, "kind": None}, 3]


def get_init_inputs():
    return []
"""
SUMS = SourceFile(
    path="tools/sums.py", text="def weighted(x, w, scale, eps):\n    return (x * w).sum(-1) * scale + eps\n"
)


def task(text: str = NESTED, *files: SourceFile, calling: Calling = "module") -> TaskSpec:
    return TaskSpec(name="t", source="own", text=text, files=files or (SUMS,), calling=calling)


def plain(forward: str, inputs: str, more: str = "") -> TaskSpec:
    text = (
        f"import torch\nfrom torch import nn\n{more}\nclass Model(nn.Module):\n    def forward(self, x, *rest):\n"
        f"        {forward}\n\ndef get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )
    return TaskSpec(name="t", source="own", text=text)


def test_a_nest_is_taken_apart_into_tensors_with_names() -> None:
    problem = Problem(task())
    assert [(spec.name, spec.role, spec.dtype) for spec in problem.tensors] == [
        ("data.pair.0", "input", "float32"),
        ("data.pair.1", "input", "int64"),
        ("data.w", "input", "float32"),
        ("sum", "output", "float32"),
        ("rest.0", "output", "float32"),
    ]
    call = problem.call
    assert isinstance(call, CallForm)
    assert isinstance(call.arguments.items[0], DictOf)
    assert call.constants == ((3, 1e-3), (4, 3))
    assert [type(leaf) for leaf in leaves_of(call.outputs)] == [TensorPlace, TensorPlace]


def test_a_nest_is_made_anew_for_the_reference_in_its_own_dtype_and_wider() -> None:
    problem = Problem(task())
    x, mask, weight = inputs = problem.inputs(seed=1)
    expected = (x.double() * weight.double()).sum(-1) * 3 + 1e-3
    narrow, wide = problem.reference(inputs, ()), problem.reference(inputs, (), wide=True)
    torch.testing.assert_close(wide[0], expected)
    torch.testing.assert_close(narrow[0], expected.float())
    assert wide[1].dtype == torch.float64
    assert torch.equal(narrow[1], x * mask)


def test_one_tensor_after_the_other_needs_no_form() -> None:
    assert Problem(plain("return x + rest[0]", "[torch.rand(3), torch.rand(3)]")).call is None
    assert Problem(plain("return x, rest[0] * 2", "(torch.rand(3), torch.rand(3))")).call is None


def test_a_tensor_without_dimensions_is_an_output() -> None:
    """As losses return it."""
    assert Problem(plain("return (x - rest[0]).abs().mean()", "[torch.rand(3), torch.rand(3)]")).tensors[-1].shape == ()


def test_a_function_has_a_form_however_plain_it_is() -> None:
    spec = plain("return x * 2", "[torch.rand(3)]")
    call = Problem(TaskSpec(name="t", source="own", text=spec.text, calling="function")).call
    assert call == CallForm(
        calling="function", arguments=TupleOf(items=(TensorPlace(),)), outputs=TensorPlace(), names=("x",)
    )


def test_modules_beside_a_problem_are_imported_from_memory_and_packages_are_too() -> None:
    files = (
        SourceFile(path="tools/__init__.py", text="from .deep.more import FACTOR\n"),
        SourceFile(path="tools/deep/more.py", text="FACTOR = 2\n"),
        SourceFile(path="tools/sums.py", text=SUMS.text),
        SourceFile(path="alone.py", text="import inspect\ndef f():\n    return 1\nTEXT = inspect.getsource(f)\n"),
    )
    text = NESTED.replace("from tools", "import alone\nassert 'return 1' in alone.TEXT\nfrom tools", 1)
    Problem(task(text, *files))
    assert not Path(str(sys.modules["alone"].__file__)).exists()


def test_each_task_has_its_own_modules_though_they_have_the_same_name() -> None:
    other = SourceFile(path="tools/sums.py", text=SUMS.text.replace("* scale", "* scale * 2"))
    first, second = Problem(task()), Problem(task(NESTED, other))
    inputs = first.inputs(seed=1)
    one, two = first.reference(inputs, ())[0], second.reference(inputs, ())[0]
    torch.testing.assert_close((two - 1e-3) / 2, one - 1e-3)


def test_a_file_may_not_take_the_place_of_a_module_of_the_judge() -> None:
    with pytest.raises(ProblemError, match=r"'torch.py' has the name of a module"):
        Problem(task(NESTED, SUMS, SourceFile(path="torch.py", text="")))


def test_a_mistake_in_a_file_is_told_in_one_line() -> None:
    with pytest.raises(ProblemError, match="the file raises NameError"):
        Problem(task(NESTED, SourceFile(path="tools/sums.py", text="nonsense\n")))


@pytest.mark.parametrize(
    ("forward", "inputs", "complaint"),
    [
        ("return x", "{'x': torch.rand(3)}", r"get_inputs\(\) returns dict; it must return a list"),
        ("return x", "[torch.rand(3), {1: 2}]", r"get_inputs\(\)\[1\] has the key 1"),
        ("return x * 2", "[torch.rand(3), __import__('random').random()]", "other numbers, texts or keys"),
        ("return x, 3", "[torch.rand(3)]", "numbers and texts are no outputs"),
        ("return [None]", "[torch.rand(3)]", "returns no tensor"),
        ("return {'a': object()}", "[torch.rand(3)]", r"output\['a'\] is object"),
    ],
)
def test_what_cannot_be_called_is_refused_in_one_line(forward: str, inputs: str, complaint: str) -> None:
    with pytest.raises(ProblemError, match=complaint):
        Problem(plain(forward, inputs)).inputs(seed=1)


def test_a_function_has_no_parameters_of_its_own() -> None:
    made = "    def __init__(self):\n        super().__init__()\n        self.gain = nn.Parameter(torch.ones(1))\n\n"
    text = NESTED.replace("    def forward", f"{made}    def forward", 1)
    Problem(task(text))
    with pytest.raises(ProblemError, match="Model holds gain, but candidates of this task are functions"):
        Problem(task(text, calling="function"))


def test_what_is_to_stay_as_drawn_is_changed_by_no_family() -> None:
    spec = plain("return x * rest[0]", "[torch.rand(64), torch.rand(64)]", "AS_DRAWN = ['x']")
    maker = DataMaker(Problem(spec), Tolerance())
    x, other = maker.bare("centred", seed=5).inputs
    drawn, before = maker.problem.inputs(5)
    assert torch.equal(x, drawn)
    assert not torch.equal(other, before)
    with pytest.raises(ProblemError, match="AS_DRAWN names 'y', which is no input; there are: x"):
        DataMaker(Problem(plain("return x", "[torch.rand(64)]", "AS_DRAWN = ['y']")), Tolerance())


def test_integers_stay_integers_as_they_were_drawn() -> None:
    spec = plain("return x[rest[0]]", "[torch.rand(64), torch.randperm(64)]")
    maker = DataMaker(Problem(spec), Tolerance())
    for family in ("centred", "a few huge values"):
        if family in maker.skipped or not maker.applies(family):
            continue
        assert torch.equal(maker.bare("centred", seed=7).inputs[1], maker.problem.inputs(7)[1])


def test_room_for_an_output_is_given_to_the_reference_and_is_no_input() -> None:
    spec = plain("rest[0].copy_(x * 2); return rest[0]", "[torch.rand(3), torch.empty(3, device='meta')]")
    problem = Problem(spec)
    assert [tensor.name for tensor in problem.tensors] == ["x", "output"]
    inputs = problem.inputs(seed=3)
    assert torch.equal(problem.reference(inputs, ())[0], inputs[0] * 2)
    assert problem.reference(inputs, (), wide=True)[0].dtype == torch.float64


def test_a_problem_that_names_a_gpu_runs_without_one() -> None:
    spec = plain("return x.cuda() * 2", "[torch.rand(3, device='cuda')]")
    assert Problem(spec).output_specs[0].shape == (3,)


def test_a_reference_is_slowed_by_a_gpu_that_it_names_and_not_by_one_that_its_inputs_name() -> None:
    assert Problem(plain("return x.cuda() * 2", "[torch.rand(3)]")).needs_stage
    assert not Problem(plain("return x * 2", "[torch.rand(3, device='cuda')]")).needs_stage


CHECKED = """
def check_outputs(x, output):
    if not bool((output * output - x).abs().max() < 1e-4):
        return "its square is not x"
    return ""
"""


def test_a_problem_s_own_check_says_what_is_right_and_the_reference_is_one_of_several_answers() -> None:
    maker = DataMaker(Problem(plain("return x.sqrt()", "[torch.rand(64)]", CHECKED)), Tolerance())
    data = maker.given()
    assert data.complaint is not None
    root = maker.problem.reference(data.inputs, data.state)
    assert data.complaint((-root[0],)) == ""
    assert data.complaint((root[0] + 1,)) == "its square is not x"
    assert wrong_share((torch.zeros(64),), data) == 1.0
    # Where the reference itself fails the check, nobody is checked: here on negative numbers.
    assert maker.make("centred") is None
    assert "square" in maker.skipped["centred"] or "finite" in maker.skipped["centred"]


def test_a_check_that_refuses_its_own_reference_is_no_check() -> None:
    with pytest.raises(ProblemError, match="refuses what the reference itself returns: its square is not x"):
        Problem(plain("return x * 2", "[torch.rand(64)]", CHECKED))


def test_a_description_tells_numbers_and_nests_in_each_language() -> None:
    spec = task(calling="function")
    problem = Problem(spec)
    told = {
        language: describe_problem(spec, problem, language).prompt
        for language in get_args(Language)
        if language != "cuda"
    }
    for prompt in told.values():
        assert "It imports `tools/sums.py`" in prompt
        assert "| `inputs[4]` | `scale` | number 3 | | int64 |" in prompt
    assert "const int64_t scale = *static_cast<const int64_t*>(inputs[4]);  // 3" in told["cpp"]
    assert "const double data_eps = *static_cast<const double*>(inputs[3]);  // 0.001" in told["cpp"]
    assert "def ksearch_run(data_pair_0, data_pair_1, data_w, data_eps, scale, sum, rest_0) -> None:" in told["triton"]
    assert "def ksearch_run(data, scale):" in told["python"]
    assert "`data` is `{'pair': (tensor, tensor), 'w': tensor, 'eps': 0.001, 'kind': None}`" in told["python"]


def test_inputs_and_outputs_may_be_floats_of_eight_bits() -> None:
    drawn = "[torch.randn(4, 8).to(torch.float8_e4m3fn)]"
    kept = 'AS_DRAWN = ["x"]\n'
    problem = Problem(plain("return x.float() * 2", drawn, kept))
    assert problem.tensors[0].dtype == "float8_e4m3fn"
    maker = DataMaker(problem, Tolerance(profile="flashinfer"))
    assert not maker.applies("spikes")
    assert maker.given().expected[0].shape == (4, 8)
    low = Problem(plain("return (x.float() * 2).to(torch.float8_e4m3fn)", drawn, kept))
    assert low.output_specs[0].dtype == "float8_e4m3fn"
    data = DataMaker(low, Tolerance()).given()
    (output,) = low.reference(data.inputs, data.state)
    assert not bool(data.allowed[0].errors(output, data.expected[0]).wrong.any())
    assert bool(data.allowed[0].errors((-output.float()).to(output.dtype), data.expected[0]).wrong.any())
