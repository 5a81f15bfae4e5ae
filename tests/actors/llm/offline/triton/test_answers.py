"""What coder and planner answer when the task's language is Triton."""

from __future__ import annotations

import pytest
from rpds import HashTrieMap

from actors.coder.parse import parse_answer
from actors.llm.offline.answers import code_answer, plan_answer
from actors.llm.offline.plan import Plan, read_plan
from actors.llm.offline.reading import read_contract
from actors.llm.offline.stages import NoRuleError
from actors.planner.answers import parse_script
from actors.planner.core.scripts import conflicts
from actors.planner.core.state import SearchState, root_node
from actors.planner.prompts import plan_request
from evaluators.languages import support_of
from messages.edits import EditScript, Insert
from messages.facts import PlanRequested
from messages.tasks import AttemptBrief, Candidate, TaskDescription
from tests.actors.llm.offline.prompts import CONVOLUTION, TENSORS, coder_prompt, description, write_job
from tests.actors.llm.offline.references import reference

ROWS = description(language="triton")


def answered(task: TaskDescription, title: str, words: str = "", **changes: object) -> tuple[Candidate | None, str]:
    job = write_job(title, words, task=task, **{"language": "triton", **changes})
    return parse_answer(code_answer(coder_prompt(job), seed=0), language="triton", entry_point="ksearch_run")


def written(task: TaskDescription, title: str, words: str = "", **changes: object) -> Candidate:
    candidate, complaint = answered(task, title, words, **changes)
    assert candidate is not None, complaint
    return candidate


def plan_of(candidate: Candidate) -> Plan:
    plan = read_plan(candidate.files[0].text)
    assert plan is not None
    return plan


def planned(task: TaskDescription) -> EditScript:
    state = SearchState(nodes=HashTrieMap({"n0": root_node()}))
    request = PlanRequested(job_id="r1-p1", purpose="analyse", wanted=8)
    script, complaint = parse_script(plan_answer(plan_request(state, request, task).prompt))
    assert script is not None, complaint
    assert conflicts(state, script, limit=8) == ()
    return script


def test_the_contract_of_the_prompt_is_kept() -> None:
    file = written(ROWS, "Warps", "Add to the plan: `warps`.").files[0]
    assert file.path == "kernel.py"
    assert "def ksearch_run(x, gate, weight, output):" in file.text.splitlines()


def test_an_action_is_added_to_the_plan_of_the_base() -> None:
    first = written(ROWS, "Stream", "Add to the plan: `stream`.")
    assert plan_of(first) == Plan(stream=True)
    second = plan_of(written(ROWS, "Warps", "Add to the plan: `warps`.", base=first, base_outcome="correct"))
    assert second.stream
    assert second.warps


@pytest.mark.parametrize(
    ("words", "field"),
    [("Several rows per program.", "rows"), ("A persistent grid of programs.", "persistent")],
)
def test_actions_in_other_planners_words_are_understood(words: str, field: str) -> None:
    assert getattr(plan_of(written(ROWS, "An idea", words)), field) != getattr(Plan(), field)


def test_attempts_of_a_branch_are_all_different() -> None:
    seen = set()
    for count in range(12):
        history = tuple(AttemptBrief(number=n + 1, fate="measured", outcome="correct") for n in range(count))
        seen.add(written(ROWS, "Numbers", "Add to the plan: `warps rows`.", history=history).candidate_id)
    assert len(seen) == 12


def test_what_there_is_no_rule_for_is_named() -> None:
    task = description(CONVOLUTION, language="triton")
    candidate, complaint = answered(task, "Fuse")
    assert candidate is None
    assert "no rule for" in complaint
    assert "conv1d" in complaint


def test_what_only_triton_has_no_rule_for_is_named() -> None:
    task = description(reference("x, gate):\n        return x ** gate * self.weight", "[]"), language="triton")
    assert "a power with a computed exponent in Triton" in answered(task, "Fuse")[1]


def test_the_planner_proposes_what_makes_sense_for_triton() -> None:
    titles = [edit.title for edit in planned(ROWS).edits if isinstance(edit, Insert)]
    assert "Choose the warps per program" in titles
    assert not any("thread" in title or "libm" in title for title in titles)


def test_there_is_no_rule_for_cuda_yet() -> None:
    with pytest.raises(NoRuleError, match="CUDA"):
        read_contract(support_of("cuda", "cuda").describe(TENSORS))
