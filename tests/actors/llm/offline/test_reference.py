"""What staged programs are read as. The tensors' table is written here: nothing is run."""

from __future__ import annotations

import pytest

from actors.llm.offline.lowering import bound_of, grouped
from actors.llm.offline.reference import read_program
from actors.llm.offline.stages import NoRuleError, Program, TensorInfo
from tests.actors.llm.offline.references import reference

Shape = tuple[int, ...]


def read(forward: str, inputs: dict[str, Shape], output: Shape, *, init: str = "pass", **parameters: Shape) -> Program:
    tensors = [TensorInfo(name=name, role="input", shape=shape, dtype="float32") for name, shape in inputs.items()]
    tensors += [
        TensorInfo(name=name.replace("__", "."), role="parameter", shape=shape, dtype="float32")
        for name, shape in parameters.items()
    ]
    tensors.append(TensorInfo(name="output", role="output", shape=output, dtype="float32"))
    return read_program(reference(forward, "[]", init=init), tuple(tensors))


DECODE = (
    "q, k, v, at):\n"
    "        k, v = k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)\n"
    "        s = torch.einsum('bhd,bhnd->bhn', q, k)\n"
    "        s = s.masked_fill(torch.arange(50) {sign} at[:, None, None], float('-inf'))\n"
    "        return torch.einsum('bhn,bhnd->bhd', s.softmax(-1), v)"
)
SHAPES = {"q": (2, 6, 16), "k": (2, 2, 50, 16), "v": (2, 2, 50, 16), "at": (2,)}


def test_repeated_heads_are_strides_and_no_copies() -> None:
    program = read(DECODE.replace("{sign}", ">"), SHAPES, (2, 6, 16))
    scores, softmax, result = program.stages
    assert scores.is_contraction
    assert (scores.rows, scores.columns) == ((4, 3, 50), (16,))
    assert scores.reads[1].strides == (800, 0, 16, 1)
    assert not softmax.is_contraction
    assert len(softmax.reductions) == 2
    assert result.is_contraction
    assert result.target.name == "output"


def test_attention_stays_on_chip_from_the_scores_to_the_sum() -> None:
    (group,) = grouped(read(DECODE.replace("{sign}", ">"), SHAPES, (2, 6, 16)), fuse=True)
    assert group.rows == (2, 2, 3)
    assert len(group.local) == 2


@pytest.mark.parametrize(("sign", "more"), [(">", 1), (">=", 0)])
def test_columns_behind_a_mask_are_known_to_be_left_out(sign: str, more: int) -> None:
    softmax = read(DECODE.replace("{sign}", sign), SHAPES, (2, 6, 16)).row_stages[0]
    bound = bound_of(softmax)
    assert bound is not None
    assert bound.more == more


def test_columns_before_a_mask_are_not_taken_for_those_behind_it() -> None:
    softmax = read(DECODE.replace("{sign}", "<"), SHAPES, (2, 6, 16)).row_stages[0]
    assert bound_of(softmax) is None


def test_masked_values_that_count_are_computed() -> None:
    source = DECODE.replace("{sign}", ">").replace("float('-inf')", "0.0")
    assert bound_of(read(source, SHAPES, (2, 6, 16)).row_stages[0]) is None


def test_a_linear_layer_is_a_contraction_and_its_bias_a_row_stage() -> None:
    program = read(
        "x):\n        return self.f(x)", {"x": (3, 5, 8)}, (3, 5, 12), init="self.f = nn.Linear(8, 12)",
        f__weight=(12, 8), f__bias=(12,),
    )  # fmt: skip
    product, bias = program.stages
    assert product.is_contraction
    assert (product.rows, product.columns, product.reads[1].strides) == ((15, 12), (8,), (0, 8, 1))
    assert not bias.is_contraction
    assert product.flops == 2 * 15 * 12 * 8


def test_what_one_row_needs_of_all_rows_is_no_part_of_its_group() -> None:
    program = read("x, y):\n        return (x @ y).relu() @ y", {"x": (7, 9), "y": (9, 9)}, (7, 9))
    assert len(grouped(program, fuse=True)) == 1
    other = read("x):\n        return (x @ x).relu().t() @ x", {"x": (9, 9)}, (9, 9))
    assert len(grouped(other, fuse=True)) == 2


def test_rows_are_one_stage_that_holds_all_their_reductions() -> None:
    (softmax,) = read("x):\n        return x.softmax(-1)", {"x": (4, 6)}, (4, 6)).stages
    assert (softmax.rows, softmax.columns, len(softmax.reductions)) == ((4,), (6,), 2)


def test_halves_that_are_put_together_again_are_one_stage() -> None:
    rotated = read(
        "x, c, s):\n        a, b = x.chunk(2, dim=-1)\n        return x * c + torch.cat((-b, a), dim=-1) * s",
        {"x": (5, 7, 8), "c": (7, 8), "s": (7, 8)},
        (5, 7, 8),
    )
    assert len(rotated.stages) == 1


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("x):\n        return torch.einsum('ii->i', x)", "diagonal"),
        ("x):\n        return F.conv1d(x, x)", "conv1d"),
        ("x):\n        return self.missing(x)", "__init__"),
        ("x):\n        if x.sum() > 0:\n            return x\n        return x @ x", "condition"),
        ("x):\n        return x @ x[:4]", "shapes"),
    ],
)
def test_what_has_no_rule_is_named(forward: str, said: str) -> None:
    with pytest.raises(NoRuleError, match=said):
        read(forward, {"x": (9, 9)}, (9, 9))


def test_results_that_are_whole_numbers_have_no_rule() -> None:
    tensors = (
        TensorInfo(name="x", role="input", shape=(4,), dtype="int64"),
        TensorInfo(name="output", role="output", shape=(4,), dtype="int64"),
    )
    with pytest.raises(NoRuleError, match="int64"):
        read_program(reference("x):\n        return x * 3", "[]"), tensors)
