"""To which queue a request goes: coders by the tier of the model that is asked, others by language and architecture."""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.jobs import Texts, further_tiers, job_for, queue_of, write_queues
from actors.worker.taking import queue_of as queue_of_card
from messages.commands import BuildCandidate, WriteCandidate
from messages.events import CandidateEvaluated, RunStarted
from messages.facts import BuildRequested, WriteRequested
from messages.models import Lineup, Offer
from messages.presence import Presence, RunCard, takes_jobs_of
from messages.settings import SearchSettings
from messages.tasks import DescribedWorkload, ModuleTerms, TensorSpec
from messages.verdicts import Measured, WorkloadProfile, Wrong
from tests.actors.planner.core.world import RUN, TARGET, World, candidate, inserts, started, writes

LINEUP = Lineup(coders=(Offer(name="small", tier="small"), Offer(name="large"), Offer(name="huge", tier="small")))


def opening() -> RunStarted:
    return replace(started(SearchSettings(), lineup=LINEUP), tier="large")


def asked(model: str) -> WriteRequested:
    return WriteRequested(job_id="j1", branch_id="b1", mode="apply", base_id=None, current_id=None, model=model)


def test_a_question_goes_to_the_coders_that_have_the_model() -> None:
    assert queue_of(opening(), LINEUP, asked("small")) == f"ks.job.write.small.any.{RUN}"
    assert queue_of(opening(), LINEUP, asked("large")) == f"ks.job.write.large.any.{RUN}"
    assert queue_of(opening(), LINEUP, asked("")) == f"ks.job.write.large.any.{RUN}"
    build = BuildRequested(job_id="j2", branch_id="b1", candidate_id="c")
    assert queue_of(opening(), LINEUP, build) == f"ks.job.build.x86-64.cpp.{RUN}"


def test_a_run_has_a_queue_for_each_tier_once_its_own_first() -> None:
    assert further_tiers(opening(), LINEUP) == ("small",)
    assert write_queues(opening(), LINEUP) == (f"ks.job.write.large.any.{RUN}", f"ks.job.write.small.any.{RUN}")
    assert write_queues(opening(), Lineup()) == (f"ks.job.write.large.any.{RUN}",)


def test_a_coder_of_a_further_tier_works_for_the_run_from_its_own_queue() -> None:
    card = RunCard(
        run_id=RUN,
        task_name="t",
        language="cpp",
        target=TARGET,
        tier="large",
        tiers=("small",),
        submitted_at="",
        updated_at="",
    )
    coder = Presence(
        name="c", role="coder", host="h", pid=1, version="0", state="ready", tier="small", started_at="", seen_at=""
    )
    assert takes_jobs_of(coder, card)
    assert not takes_jobs_of(replace(coder, tier="other"), card)
    assert queue_of_card("coder", card, "small") == f"ks.job.write.small.any.{RUN}"
    assert queue_of_card("coder", card) == f"ks.job.write.large.any.{RUN}"


def test_a_coder_is_asked_in_the_form_of_its_model_and_else_of_the_run() -> None:
    coders = (Offer(name="small", edit_format="whole"), Offer(name="large", edit_format="search-replace"))
    settings = SearchSettings(branches=1, edit_format="auto")
    for lineup, model, expected in (
        (Lineup(coders=coders), "small", "whole"),
        (Lineup(coders=coders), "large", "search-replace"),
        (Lineup(coders=coders[1:]), "", "search-replace"),
        (Lineup(coders=(Offer(name="small"),)), "", "auto"),
        (Lineup(), "", "auto"),
    ):
        world, texts = World(settings, lineup=lineup), Texts()
        texts.take(started(settings, lineup=lineup))
        world.propose(inserts(3))
        request = replace(writes(world)[0], model=model)
        job = job_for(world.state, texts, request)
        assert isinstance(job, WriteCandidate)
        assert job.edit_format == expected


def test_a_build_is_told_what_each_workload_calls_and_how_its_modules_are_made() -> None:
    tensors = (TensorSpec(name="x", role="input", shape=(64, 8), dtype="float32"),)
    workload = DescribedWorkload(name="short", tensors=tensors, bytes_moved=1)
    modules = (ModuleTerms(arguments="(8,)"), ModuleTerms(arguments="(16,)"))
    own = opening()
    description = replace(own.description, tensors=tensors, workloads=(workload, workload), modules=modules)
    texts, made = Texts(), candidate("int x = 0;")
    texts.take(replace(own, description=description, initial=made))
    request = BuildRequested(job_id="j2", branch_id="b1", candidate_id=made.candidate_id)
    job = job_for(World(SearchSettings()).state, texts, request)
    assert isinstance(job, BuildCandidate)
    assert (job.tensors, job.other_tensors, job.modules) == (tensors, (tensors,), modules)


def test_who_builds_on_a_candidate_is_told_what_its_latest_verdict_knows_of_it() -> None:
    profile = WorkloadProfile(span_us=2.0, busy_us=1.0, kernels_us=1.0, own_us=1.0, kernels=())
    world, texts, base = World(SearchSettings(branches=1)), Texts(), candidate("int x = 0;")
    world.propose(inserts(3))
    request = replace(writes(world)[0], base_id=base.candidate_id)
    texts.take(replace(started(SearchSettings()), initial=base))
    for verdict, known in (
        (None, ()),
        (Measured(timed=True), ()),
        (Measured(timed=True, profile=(profile,)), (profile,)),
        (Wrong(reason="wrong", family="given"), ()),
    ):
        if verdict is not None:
            texts.take(CandidateEvaluated(job_id="e", candidate_id=base.candidate_id, verdict=verdict, device="GPU"))
        job = job_for(world.state, texts, request)
        assert isinstance(job, WriteCandidate)
        assert job.base_profile == known
