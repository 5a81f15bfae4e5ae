from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.llm.offline.cpp.moves import CATALOGUE as CPP
from actors.llm.offline.plan import Plan, plan_comment, read_plan
from actors.llm.offline.triton.codegen import CATALOGUE as TRITON

plans = st.builds(
    Plan,
    **{name: st.booleans() for name in ("fuse", "threads", "vectorise", "keep", "wide", "exact", "stream")},
    **{name: st.sampled_from(values) for name, values in {**CPP.parameters, **TRITON.parameters}.items()},
)


@given(plans, st.sampled_from(["//", "#"]))
def test_a_plan_comes_back_from_its_comment(plan: Plan, mark: str) -> None:
    assert read_plan(f"{mark} a program\n{plan_comment(plan, mark)}\nint main();") == plan


@pytest.mark.parametrize("words", ["fuse=1 spin", "fuse rows=0 rows=x", "fuse tile=-3 lanes=99999999999"])
def test_words_of_others_in_a_plan_mean_nothing(words: str) -> None:
    assert read_plan(f"// plan: {words}") == Plan(fuse=True)


def test_a_source_without_a_comment_has_no_plan() -> None:
    assert read_plan("int ksearch_run();") is None
