"""Which operators candidates may not call, for what a reference calls."""

from __future__ import annotations

import pytest
import torch

from evaluators.build.policy.operators import FAMILIES, bare_name, denied_operators, parse_allowed, say_rules
from evaluators.judge.reference.operators import denied_to_candidates
from evaluators.judge.reference.problem import Problem
from evaluators.tasks import load_task
from messages.base import ConfigError
from messages.tasks import TaskRules

KNOWN = torch._C._dispatch_get_all_op_names()
DENY = TaskRules()


def denied(*called: str, rules: TaskRules = DENY) -> set[str]:
    return {name.removeprefix("aten::") for name in denied_operators(called, rules, KNOWN)}


def test_views_copies_and_plain_elementwise_operators_are_permitted_and_nothing_else_is() -> None:
    names = denied("aten::mean", "aten::view")
    assert {"mean", "sum", "amax", "var_mean", "avg_pool1d", "cumsum", "sort", "scatter_add", "any"} <= names
    assert not {"view", "add", "copy", "empty", "gelu", "gather", "index", "addcmul"} & names


@pytest.mark.parametrize(
    "name",
    [
        "softplus_backward",
        "convolution_backward",
        "_compute_linear_combination",
        "linalg_vecdot",
        "_linalg_svd",
        "embedding_bag",
        "_foreach_mul",
        "_fused_adam",
        "from_file",
        "an_operator_of_a_later_version",
    ],
)
def test_an_operator_that_nobody_listed_is_denied_for_every_reference(name: str) -> None:
    for called in ("aten::relu", "aten::mm", "aten::roll"):
        for full in (f"aten::{name}", f"aten::{name}_", f"aten::{name}.out", f"another::{name}"):
            assert denied_operators([called], DENY, [full]) == (bare_name(full),)


def test_activations_are_denied_where_the_reference_is_elementwise_only_or_calls_one() -> None:
    assert {"exp", "sigmoid", "gelu"} <= denied("aten::silu")
    assert "sigmoid" in denied("aten::silu", "aten::mm")
    assert "exp" not in denied("aten::silu", "aten::mm")
    assert "silu" not in denied("aten::mm")


def test_moves_by_an_index_are_denied_where_the_reference_makes_such() -> None:
    assert {"gather", "index_select", "index_put"} <= denied("aten::embedding")
    assert "index_put" not in denied("aten::mm")


def test_what_torch_needs_for_itself_is_permitted() -> None:
    needed = "detach _to_copy set_ empty.memory_format is_nonzero _local_scalar_dense lift_fresh record_stream resize_"
    for name in (*needed.split(), "_has_compatible_shallow_copy_type", "copy_", "alias", "set_data"):
        assert not denied_operators(["aten::exp"], DENY, [f"aten::{name}"]), name
    assert not denied_operators(["aten::exp"], DENY, ["profiler::_record_function_enter_new"])


def test_fused_operators_are_denied_whatever_the_reference_calls() -> None:
    names = denied("aten::relu")
    for name in (
        "mm",
        "linear",
        "einsum",
        "convolution",
        "scaled_dot_product_attention",
        "_softmax",
        "softmax",
        "lstm",
    ):
        assert name in names
    assert {"native_layer_norm", "rms_norm", "_addmm_activation", "_int_mm"} <= names


def test_elementwise_operators_are_denied_only_where_they_are_the_task() -> None:
    assert {"add", "mul", "exp", "where"} <= denied("aten::mul", "aten::add", "aten::expand")
    assert not {"add", "mul", "exp"} & denied("aten::mul", "aten::mm")


def test_an_operator_of_no_family_is_denied_by_its_own_name() -> None:
    assert "polar" in denied("aten::polar")
    assert "polar" not in denied("aten::mm")


def test_operators_in_place_and_with_overloads_are_the_same_operator() -> None:
    assert bare_name("aten::relu_") == bare_name("aten::relu.out") == "aten::relu"
    assert bare_name("aten::__and__.Scalar") == "aten::__and__"


def test_library_namespaces_are_denied() -> None:
    assert {"mkldnn::_linear_pointwise", "mkl::_mkl_linear"} <= set(
        denied_operators(["aten::relu"], DENY, ["mkldnn::_linear_pointwise", "mkl::_mkl_linear"])
    )


def test_nothing_is_denied_where_library_calls_are_allowed() -> None:
    assert denied("aten::mm", rules=TaskRules(library_calls="allow")) == set()


def test_operators_and_families_can_be_allowed_by_name() -> None:
    assert "mm" not in denied("aten::mm", rules=TaskRules(allowed=("aten::mm",)))
    assert "bmm" in denied("aten::mm", rules=TaskRules(allowed=("aten::mm",)))
    assert not FAMILIES["matmul"] & denied("aten::mm", rules=TaskRules(allowed=("matmul",)))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("softmax_rows", {"_softmax"}),
        ("layernorm_gelu", {"native_layer_norm", "gelu"}),
        ("rmsnorm_silu", {"mean", "silu"}),
        ("gqa_decode", {"bmm", "_softmax"}),
    ],
)
def test_what_bundled_references_call_is_denied(task: str, expected: set[str]) -> None:
    spec = load_task(task)
    names = denied_to_candidates(Problem(spec), spec.rules)
    assert {f"aten::{name}" for name in expected} <= set(names)


def test_all_names_of_families_exist_or_are_python_functions() -> None:
    known = {bare_name(name) for name in KNOWN}
    missing = {name for family in FAMILIES.values() for name in family if f"aten::{name}" not in known}
    # What another build of torch has, or had; a slip of the pen would add to them.
    assert len(missing) < 40, sorted(missing)


def test_names_to_allow_are_checked() -> None:
    assert parse_allowed("aten::mm, cublas,matmul,") == ("aten::mm", "cublas", "matmul")
    assert parse_allowed("") == ()
    with pytest.raises(ConfigError, match="did you mean 'cublas'"):
        parse_allowed("libcublass")


def test_the_rules_are_told_in_words() -> None:
    assert "matmul" in say_rules(DENY)
    assert say_rules(TaskRules(library_calls="allow")) == "Every operator of torch may be called."
    assert "Allowed nevertheless: aten::mm." in say_rules(TaskRules(allowed=("aten::mm",)))
