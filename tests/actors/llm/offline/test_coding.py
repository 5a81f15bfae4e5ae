from __future__ import annotations

import msgspec
import pytest

from actors.coder.parse import parse_answer
from actors.llm.offline.answers import code_answer
from actors.llm.offline.plan import Plan, read_plan
from messages.commands import WriteCandidate
from messages.tasks import AttemptBrief, Candidate, SourceFile
from messages.verdicts import Verdict, Wrong
from tests.actors.llm.offline.prompts import ATTENTION, CONVOLUTION, coder_prompt, description, write_job

FUSE = "Add to the plan: `fuse`."
CONTRACT_HEADER = (
    'extern "C" int ksearch_run( const void* const* inputs, void* const* outputs, const int64_t* const* shapes ) {'
)


def written(job: WriteCandidate, *, seed: int = 0) -> Candidate:
    answer = code_answer(coder_prompt(job), seed=seed)
    candidate, complaint = parse_answer(answer, language="cpp", entry_point="ksearch_run")
    assert candidate is not None, complaint
    return candidate


def plan_of(candidate: Candidate) -> Plan:
    plan = read_plan(candidate.files[0].text)
    assert plan is not None
    return plan


def history(count: int) -> tuple[AttemptBrief, ...]:
    return tuple(AttemptBrief(number=n, fate="measured", outcome=f"measured: {n}x") for n in range(1, count + 1))


def test_the_contract_of_the_prompt_is_kept() -> None:
    assert CONTRACT_HEADER in written(write_job("Fuse", FUSE)).files[0].text


def test_an_action_is_added_to_the_plan_of_the_base() -> None:
    first = written(write_job("Fuse", FUSE))
    assert plan_of(first) == Plan(fuse=True)
    second = written(write_job("Threads", "Add to the plan: `threads`.", base=first, base_outcome="measured: 2x"))
    assert plan_of(second) == Plan(fuse=True, threads=True)


def test_what_a_transformation_needs_comes_with_it() -> None:
    plan = plan_of(written(write_job("Write past the caches", "Add to the plan: `stream`.")))
    assert plan.vectorise
    assert plan.stream


@pytest.mark.parametrize(
    ("title", "words", "field"),
    [
        ("Caches", "Use non-temporal stores for the output.", "stream"),
        ("Use all cores", "Parallel loop over rows with OpenMP.", "threads"),
        ("AVX", "Use SIMD instructions in the inner loop.", "vectorise"),
        ("Waiting", "A dynamic schedule levels the load.", "dynamic"),
    ],
)
def test_actions_in_other_planners_words_are_understood(title: str, words: str, field: str) -> None:
    assert getattr(plan_of(written(write_job(title, words))), field) != getattr(Plan(), field)


def test_attempts_of_a_branch_are_all_different() -> None:
    told = {"task": description(ATTENTION)}
    base = written(write_job("Fuse", "Add to the plan: `fuse threads vectorise tile lanes rows`.", **told))
    seen = {base.candidate_id}
    for count in range(1, 20):
        job = write_job("Tune the parameters, round 1", "Add to the plan: ``.", mode="improve", base=base,
                        history=history(count), **told)  # fmt: skip
        seen.add(written(job).candidate_id)
    assert len(seen) == 20


def test_an_action_adds_its_own_transformations_and_no_others() -> None:
    base = written(write_job("Fuse", "Add to the plan: `fuse threads vectorise rows`."))
    for count in range(4):
        job = write_job("Tile", "Add to the plan: `tile`.", base=base, history=history(count))
        plan = plan_of(written(job))
        assert msgspec.structs.replace(plan, tile=1, rows=0) == Plan(fuse=True, threads=True, vectorise=True)


def test_draws_and_seeds_try_parameters_in_other_orders() -> None:
    job = write_job("Tiles", "Add to the plan: `tile rows`.")
    programs = {written(job, seed=seed).candidate_id for seed in range(8)}
    draws = {written(write_job("Tiles", "Add to the plan: `tile rows`.", sample=k)).candidate_id for k in range(8)}
    assert len(programs) > 1
    assert len(draws) > 1


def test_the_same_prompt_gives_the_same_answer() -> None:
    prompt = coder_prompt(write_job("Fuse", FUSE))
    assert code_answer(prompt, seed=3) == code_answer(prompt, seed=3)


def test_when_all_parameters_were_tried_the_answer_says_so() -> None:
    answer = code_answer(coder_prompt(write_job("Fuse", FUSE, history=history(100_000))), seed=0)
    candidate, complaint = parse_answer(answer, language="cpp", entry_point="ksearch_run")
    assert candidate is None
    assert "Nothing further" in complaint


@pytest.mark.parametrize(("failed", "expected"), [("fuse vectorise", (True, False)), ("fuse wide", (True, True))])
def test_after_a_wrong_result_the_numbers_are_treated_with_more_care(failed: str, expected: tuple[bool, bool]) -> None:
    text = f"// plan: {failed}\nint ksearch_run();"
    latest = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="k.cpp", text=text),))
    verdict: Verdict = Wrong(reason="3 of 9 elements differ")
    job = write_job(
        "Vectorise", "Add to the plan: `vectorise`.", mode="debug", current=latest, current_verdict=verdict,
        history=history(1),
    )  # fmt: skip
    plan = plan_of(written(job))
    assert (plan.wide, plan.exact) == expected


def test_what_there_is_no_rule_for_is_named() -> None:
    answer = code_answer(coder_prompt(write_job("Fuse", FUSE, task=description(CONVOLUTION))), seed=0)
    candidate, complaint = parse_answer(answer, language="cpp", entry_point="ksearch_run")
    assert candidate is None
    assert "no rule for the operation `torch.nn.functional.conv1d`" in complaint


def test_the_name_of_a_task_has_no_part_in_its_program() -> None:
    one = written(write_job("Fuse", FUSE, task=description(name="rms_norm")))
    other = written(write_job("Fuse", FUSE, task=description(name="softmax")))
    assert one == other
