"""One example of everything that travels or is kept, each field set, and the frozen form of each in `golden.json`.

After a change that is meant, and that old journals survive: `python tests/messages/examples.py` writes the file anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from messages.base import EndpointFault, Usage
from messages.calls import CallForm, ConstantPlace, DictOf, ListOf, TensorPlace, TupleOf
from messages.codec import Record, to_json
from messages.commands import BuildCandidate, EvaluateCandidate, WriteCandidate
from messages.edits import EditScript, Insert, Proposal, Prune, Refusal, Split, Update
from messages.events import (
    Built,
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    ClockTicked,
    ContinueRequested,
    EditsProposed,
    JobLost,
    JobsUnserved,
    PauseRequested,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    BuildRequested,
    CandidateAwaited,
    ConfirmationFinished,
    ConfirmationOwed,
    ConfirmationRequested,
    Decided,
    EditsApplied,
    EditsRefused,
    EvaluationRequested,
    IncumbentChanged,
    InitialRequested,
    InitialScored,
    LossNoted,
    NodeInserted,
    NodePruned,
    NodeSpent,
    NodeUpdated,
    PlanAbandoned,
    PlanRequested,
    QuestionDropped,
    RunContinued,
    RunFinished,
    RunPaused,
    RunStopping,
    SearchOpened,
    SearchReopened,
    SpendRecorded,
    TimeNoted,
    WriteRequested,
)
from messages.models import Lineup, Offer, Price, Quote
from messages.settings import Budget, Heritage, InheritedNode, SearchSettings, Selection
from messages.steering import (
    Boost,
    CandidateGiven,
    Forbid,
    Forget,
    Inject,
    Instruct,
    InstructionForgotten,
    InstructionGiven,
    NodeBoosted,
    NodeForbidden,
    NodePinned,
    NodeReleased,
    Pin,
    Release,
    SteeringRefused,
    SteeringRequested,
)
from messages.tasks import (
    Action,
    AttemptBrief,
    Candidate,
    CpuFacts,
    DescribedWorkload,
    Influence,
    Intake,
    ModuleTerms,
    Scorer,
    SourceFile,
    Target,
    TaskDescription,
    TaskRules,
    TaskSpec,
    TensorSpec,
    Tolerance,
    TrivialAnswer,
    Workload,
)
from messages.verdicts import (
    CallCheck,
    Crashed,
    DidNotBuild,
    Interval,
    Measured,
    Outpaced,
    ProfiledKernel,
    Quarantined,
    Rejected,
    Scored,
    TimedOut,
    TimedWorkload,
    Unstable,
    WorkloadProfile,
    Wrong,
)

GOLDEN = Path(__file__).with_name("golden.json")

INTERVAL = Interval(low=1.5, high=1.75)
FAULT = EndpointFault(kind="rate_limited", status=429, detail="slow down", elapsed_s=0.25, retry_after_s=2.0)
USAGE = Usage(
    calls=1, prompt_tokens=1200, cached_tokens=800, completion_tokens=300, reasoning_tokens=90, estimated_calls=1
)
TIMED_WORKLOAD = TimedWorkload(
    name="short",
    latency_us=12.5,
    reference_latency_us=20.0,
    speedup_vs_reference=1.6,
    speedup_interval=INTERVAL,
    baseline_latency_us=15.0,
    speedup_vs_baseline=1.2,
    baseline_interval=INTERVAL,
    pairs=30,
)
TARGET = Target(
    arch="x86_64",
    march="x86-64-v3",
    toolchain="g++ 13.2.0",
    device="AMD EPYC",
    cpu=CpuFacts(cores=8, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20),
)
CANDIDATE = Candidate(
    language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text="int x = 0;\n// ±\n"),)
)
TASK = TaskSpec(
    name="gate.py",
    source="kernelbench",
    text="class Model: ...",
    tolerance=Tolerance(profile="kernelbench", rtol=0.01, atol=0.5),
    rules=TaskRules(library_calls="allow", allowed=("aten::mm",), measure="eager", threads=1),
    workloads=(
        Workload(name="short", dimensions={"rows": 64, "scale": 0.5, "kind": "odd", "causal": True}),
        Workload(name="odd", dimensions={"rows": 61}, hidden=True),
    ),
    files=(SourceFile(path="reference.py", text="def gate(x): ..."),),
    shown_files=("reference.py",),
    calling="destination",
    entry_point="gate",
    languages=("python", "triton"),
    notes="As its authors define it.",
)
PROGRAM_TASK = TaskSpec(
    name="initial.py",
    source="program",
    text="def solve(): ...",
    tolerance=Tolerance(profile="kernelbench", rtol=0.01, atol=0.5),
    scorer=Scorer(
        path="/home/u/evaluator.py", digest="5e", description="Scores it.", timeout_s=12.5, memory_bytes=1 << 30
    ),
)
DESCRIPTION = TaskDescription(
    task_id="7a",
    name="gate.py",
    language="cpp",
    tensors=(TensorSpec(name="x", role="input", shape=(64, 4096), dtype="float32"),),
    prompt="Write it.",
    entry_point="ksearch_run",
    bytes_moved=2097152,
    intake=Intake(
        fitness="marked",
        findings=("gate does not matter",),
        tolerance="strict",
        reference_us=120.5,
        answers=(TrivialAnswer(name="zeros", passes=True, wrong_share=0.5),),
        influences=(
            Influence(tensor="gate", role="parameter", matters=False, moved_share=0.25, why_not="it is not floating"),
        ),
    ),
    flops=4194304,
    workloads=(
        DescribedWorkload(
            name="short",
            tensors=(TensorSpec(name="x", role="input", shape=(64, 4096), dtype="float32"),),
            bytes_moved=2097152,
            flops=524288,
        ),
    ),
    modules=(ModuleTerms(arguments="(4096, 'gelu')", parameters=2, trains=False),),
    calls=(
        CallForm(
            calling="function",
            arguments=TupleOf(
                items=(
                    DictOf(keys=("x", "eps"), items=(TensorPlace(), ConstantPlace(value=0.5))),
                    ListOf(items=(ConstantPlace(value=None), ConstantPlace(value=True))),
                )
            ),
            outputs=TensorPlace(),
            names=("data", "rest"),
        ),
    ),
)
SETTINGS = SearchSettings(
    branches=2,
    stagnation_window=3,
    repair_window=4,
    samples=2,
    max_difficulty=4,
    max_new_nodes=6,
    max_tries=2,
    refusals=1,
    max_idle_attempts=30,
    max_lost=4,
    confirm=False,
    edit_format="search-replace",
    budget=Budget(
        max_rounds=10, wall_clock_s=600.0, max_calls=50, max_tokens=100000, max_cost_usd=5.5, target_speedup=4.0
    ),
    selection=Selection(
        rule="spread", exploration=0.1, virtual_loss=0.2, evidence=0.3, difficulty=0.05, failure_decay=0.4
    ),
)
PRICE = Price(input_usd=1.25, cached_usd=0.125, output_usd=10.0, dated="2026-01-31", source="the vendor's page")
LINEUP = Lineup(
    planner=Offer(name="gpt-5", price=PRICE),
    coders=(Offer(name="gpt-oss-120b", weight=3.0, tier="open", edit_format="whole"), Offer(name="gpt-5", price=PRICE)),
    choice="bandit",
)
REFUSAL = Refusal(index=1, reason="no node 'n9'")
INSERTED = NodeInserted(
    node_id="n3",
    parent_id="n1",
    title="Fuse",
    description="One pass.",
    difficulty=2,
    priority=0.75,
    expected_gain=1.25,
    second_id="n2",
    origin="machine",
    earlier="1.60x",
)
UPDATED = NodeUpdated(
    node_id="n1", title="Block", description="By rows.", difficulty=3, priority=0.5, expected_gain=1.5
)
PRUNED = NodePruned(node_id="n2", reason="tried")
INSERT = Insert(
    parent="n1",
    title="Fuse",
    description="One pass.",
    difficulty=2,
    priority=0.75,
    expected_gain=1.25,
    merge="n2",
    key="k1",
)
PROFILE = WorkloadProfile(
    workload="short",
    span_us=12.5,
    busy_us=11.0,
    kernels_us=12.0,
    own_us=11.0,
    left_out=2,
    kernels=(
        ProfiledKernel(
            name="scale<float>",
            launches=2,
            time_us=11.0,
            is_own=True,
            grid=(64, 2, 1),
            block=(256, 1, 1),
            registers=40,
            shared_bytes=1024,
            local_bytes=16,
            occupancy=0.75,
            waves=1.5,
        ),
    ),
)
MEASURED = Measured(
    timed=True,
    printed="row 3",
    latency_us=12.5,
    reference_latency_us=20.0,
    speedup_vs_reference=1.6,
    speedup_interval=INTERVAL,
    baseline="torch.compile",
    baseline_latency_us=15.0,
    speedup_vs_baseline=1.2,
    baseline_interval=INTERVAL,
    measure="eager",
    deterministic=True,
    pairs=30,
    checks=(CallCheck(family="given", max_abs_error=0.001, error_ratio=0.25, own_error_ratio=4.0, workload="short"),),
    reference_dtype="float64",
    notes=("denormals flushed",),
    flags=("thread: import of threading (kernel.py:3)",),
    workloads=(TIMED_WORKLOAD,),
    profile=(PROFILE,),
)

VERDICTS = (
    MEASURED,
    Scored(score=0.625, metrics={"combined_score": 0.625, "stage": "full"}, notes=("log: slow start",)),
    Outpaced(reason="half as fast", speedup_interval=INTERVAL, workloads=(TIMED_WORKLOAD,), printed="row 3"),
    Unstable(reason="too wide", speedup_interval=INTERVAL, workload="short"),
    Wrong(
        reason="3 of 4 wrong",
        printed="row 3",
        family="centred",
        wrong_elements=3,
        elements=4,
        first_wrong=(0, 1),
        max_abs_error=2.5,
        patterns=("tail columns",),
        workload="short",
    ),
    DidNotBuild(reason="expected ';'", log="kernel.cpp:1: error"),
    Crashed(reason="signal 11", stage="check", log="Segmentation fault", workload="short"),
    TimedOut(reason="10 s", stage="check", limit_s=10.0, workload="short"),
    Rejected(reason="calls system()", rule="no processes", workload="short"),
    Quarantined(reason="faster than memory", speedup_interval=INTERVAL, workload="short"),
)
EDITS = (
    INSERT,
    Update(node="n1", priority=0.5, difficulty=3, title="Block", description="By rows.", expected_gain=1.5),
    Prune(node="n2", reason="tried"),
    Split(
        node="n4",
        into=(
            Proposal(title="A", description="a", difficulty=1, priority=0.25, expected_gain=1.1),
            Proposal(title="B", description="b", difficulty=5, priority=1.0),
        ),
    ),
)
SCRIPT = EditScript(summary="Bound by memory.", open_questions=("Cache size?",), edits=EDITS)
FACTS = (
    SearchOpened(run_id="r1", task_id="7a", target=TARGET, settings=SETTINGS, seed=7, initial_id="c0", lineup=LINEUP),
    SearchReopened(budget=Budget(max_rounds=20), lost_calls=3, lineup=LINEUP),
    INSERTED,
    UPDATED,
    PRUNED,
    NodeSpent(node_id="n1"),
    PlanRequested(
        job_id="j4",
        purpose="revise",
        branch_ids=("b1",),
        wanted=3,
        childless=("n1",),
        refusals=(REFUSAL,),
        tries=1,
        renews=True,
        lost=1,
    ),
    EditsRefused(job_id="j4", refusals=(REFUSAL,)),
    EditsApplied(
        job_id="j4",
        changes=(INSERTED, UPDATED, PRUNED),
        refusals=(REFUSAL,),
        summary="Bound by memory.",
        open_questions=("Cache size?",),
    ),
    PlanAbandoned(job_id="j4", reason="no JSON"),
    BranchStarted(branch_id="b1", node_id="n1", base_id="c0", second_id="c3", attempt_limit=1),
    WriteRequested(
        job_id="j1",
        branch_id="b1",
        mode="improve",
        base_id="c0",
        current_id="c1",
        complaint="no code block",
        draft=1,
        model="gpt-oss-120b",
        given_id="c2",
        lost=1,
    ),
    BuildRequested(job_id="j2", branch_id="b1", candidate_id="c1", draft=1, lost=1),
    EvaluationRequested(
        job_id="j3",
        branch_id="b1",
        candidate_id="c1",
        artifact_id="a1",
        purpose="confirm",
        keep_above=1.2,
        draft=1,
        build_facts=("row_sums: 40 registers",),
        lost=1,
    ),
    InitialRequested(job_id="j5", candidate_id="c0"),
    InitialScored(job_id="j5", candidate_id="c0", fate="scored", outcome="scored: 0.5", credit=0.5),
    AttemptFinished(
        branch_id="b1",
        candidate_id="c1",
        fate="measured",
        outcome="measured: 1.60x",
        credit=1.5,
        speedup=1.6,
        latency_us=12.5,
        round=4,
        improved=True,
        lease_s=2.5,
        draft=1,
        speedup_high=1.75,
        measured_again=True,
        evidence=("wide: 12.5 us",),
    ),
    CandidateAwaited(branch_id="b2", candidate_id="c1", draft=1),
    BranchClosed(
        branch_id="b1",
        node_id="n1",
        reason="stagnation",
        best_id="c1",
        expected_gain=1.25,
        gain=1.1,
        gain_interval=INTERVAL,
    ),
    ConfirmationOwed(
        candidate_id="c1", node_id="n1", artifact_id="a1", round=4, credit=1.5, speedup=1.6, latency_us=12.5
    ),
    ConfirmationRequested(job_id="j6", candidate_id="c1", artifact_id="a1"),
    ConfirmationFinished(
        job_id="j6",
        candidate_id="c1",
        node_id="n1",
        round=4,
        fate="measured",
        outcome="measured: 1.55x",
        screen_credit=1.5,
        screen_speedup=1.6,
        credit=1.45,
        speedup=1.55,
        speedup_high=1.65,
        latency_us=13.0,
        lease_s=5.5,
    ),
    IncumbentChanged(
        candidate_id="c1", node_id="n1", round=4, credit=1.45, speedup=1.55, latency_us=13.0, screen_speedup=1.6
    ),
    QuestionDropped(job_id="j1"),
    SpendRecorded(
        role="coder", usage=USAGE, model="gpt-oss-120b", node_id="n1", cost_usd=0.0125, latency_s=2.5, prompt_bytes=4096
    ),
    TimeNoted(elapsed_s=12.5),
    LossNoted(job_id="j3", error="device lost", permanent=True),
    RunStopping(stopped_by="rounds", detail="10 of 10"),
    RunPaused(reason="lunch"),
    RunContinued(),
    InstructionGiven(number=1, text="No shared memory.", to="coder"),
    InstructionForgotten(number=1),
    NodePinned(node_id="n1"),
    NodeBoosted(node_id="n1", by=0.25),
    NodeForbidden(node_id="n1", reason="patented"),
    NodeReleased(node_id="n1"),
    CandidateGiven(node_id="n3", candidate_id="c2"),
    SteeringRefused(reason="node 'n9' does not exist"),
    RunFinished(stopped_by="rounds", detail="10 of 10", rounds=10, best_id="c1", credit=1.5, speedup=1.6),
)
HERITAGE = Heritage(
    origin="r0",
    summary="Bound by memory.",
    open_questions=("Cache size?",),
    nodes=(
        InheritedNode(
            parent=-1,
            title="Fuse",
            description="One pass.",
            difficulty=2,
            priority=0.75,
            earlier="1.50x",
            pruned="slower",
            candidate=CANDIDATE,
        ),
    ),
)
STEERING = (
    Inject(candidate=CANDIDATE, node_id="n1", title="Mine", description="By hand."),
    Instruct(text="No shared memory.", to="coder"),
    Forget(number=1),
    Pin(node_id="n1"),
    Boost(node_id="n1", by=0.25),
    Forbid(node_id="n1", reason="patented"),
    Release(node_id="n1"),
)
EVENTS = (
    RunStarted(
        run_id="r1",
        task=PROGRAM_TASK,
        description=DESCRIPTION,
        target=TARGET,
        settings=SETTINGS,
        seed=7,
        initial=CANDIDATE,
        tier="large",
        weight=3,
        lineup=LINEUP,
        solution=CANDIDATE,
        heritage=HERITAGE,
    ),
    RunResumed(run_id="r1", budget=Budget(max_rounds=20), lineup=LINEUP),
    CandidateWritten(
        job_id="j1",
        branch_id="b1",
        candidate=CANDIDATE,
        complaint="",
        notes=("block 1 matched but for its blanks",),
        declined="all variants were tried",
        prompt="Make it fast.",
        answer="```cpp\n```",
        prompt_quotes=(Quote(at=5, source="task"), Quote(at=5, source="c" * 32, path="k.cpp", chars=300)),
        answer_quotes=(Quote(at=7, source="c" * 32, path="k.cpp"),),
        model="offline",
        usage=USAGE,
        latency_s=1.5,
        finish_reason="length",
        faults=(FAULT,),
        worker="coder-h1-5-m8n2",
    ),
    CandidateBuilt(
        job_id="j2",
        candidate_id="c1",
        outcome=Built(artifact_id="a1", log="1 warning", blob="5e"),
        target=TARGET,
        cached=True,
        wall_s=1.5,
        cpu_s=1.25,
        worker="builder-h1-7-x3f2",
    ),
    CandidateEvaluated(
        job_id="j3",
        candidate_id="c1",
        verdict=MEASURED,
        purpose="confirm",
        device="AMD EPYC",
        wall_s=2.0,
        lease_s=0.5,
        isolation=("landlock 7", "seccomp"),
        unit="cuda:1",
        worker="evaluator-h1-9-k2p4",
    ),
    EditsProposed(
        job_id="j4",
        script=SCRIPT,
        complaint="",
        notes=("edits[0]: 'difficulty' was put right",),
        unread=(Refusal(index=1, reason="no such field"),),
        prompt="What next?",
        prompt_quotes=(Quote(at=0, source="j3", chars=1000),),
        prompt_bytes=10,
        rules_digest="7c",
        answer="{}",
        model="offline",
        usage=USAGE,
        latency_s=1.5,
        finish_reason="length",
        faults=(FAULT,),
    ),
    JobLost(job_id="j3", kind="write", error="no such model", permanent=True, faults=(FAULT,)),
    ClockTicked(elapsed_s=12.5),
    StopRequested(reason="interrupted"),
    PauseRequested(reason="lunch"),
    ContinueRequested(),
    SteeringRequested(order=STEERING[0]),
    JobsUnserved(
        kind="evaluate",
        queue="ks.job.evaluate.sm-90.cpp.r1",
        role="evaluator",
        waiting_s=21.5,
        detail="no evaluator for cpp on NVIDIA H200",
    ),
)
DECIDED = Decided(cause=3, facts=FACTS, state_hash="9f")
COMMANDS = (
    WriteCandidate(
        job_id="j1",
        run_id="r1",
        branch_id="b1",
        language="cpp",
        mode="improve",
        task=DESCRIPTION,
        action=Action(node_id="n1", title="Fuse", description="One pass.", difficulty=2),
        base=CANDIDATE,
        base_outcome="measured: 1.60x",
        base_profile=(PROFILE,),
        second=CANDIDATE,
        second_outcome="measured: 1.40x",
        current=CANDIDATE,
        current_verdict=MEASURED,
        history=(AttemptBrief(number=1, fate="wrong", outcome="off by one"),),
        complaint="no code block",
        instructions=("No shared memory.",),
        target=TARGET,
        edit_format="search-replace",
        sample=1,
        model="gpt-oss-120b",
    ),
    BuildCandidate(
        job_id="j2",
        run_id="r1",
        candidate=CANDIDATE,
        target=TARGET,
        tensors=DESCRIPTION.tensors,
        other_tensors=(DESCRIPTION.tensors,),
        modules=DESCRIPTION.modules,
        calls=DESCRIPTION.calls,
    ),
    EvaluateCandidate(
        job_id="j3",
        run_id="r1",
        task=TASK,
        candidate=CANDIDATE,
        artifact_id="a1",
        artifact_blob="5e",
        target=TARGET,
        purpose="confirm",
        profile=True,
        keep_above=1.2,
    ),
)
RECORD = Record(seq=4, at="2026-01-31T12:00:00.000000+00:00", msg_id="r1.d3", body=DECIDED, after=2)

EXAMPLES: dict[str, msgspec.Struct] = {
    type(example).__name__: example
    for example in (*EVENTS, DECIDED, *COMMANDS, *VERDICTS, *EDITS, *STEERING, SCRIPT, *FACTS, RECORD)
}


def frozen_form(example: msgspec.Struct) -> dict[str, object]:
    """Return what `golden.json` keeps of an example: as JSON for people, as msgpack to the byte."""
    return {"json": json.loads(to_json(example)), "msgpack": msgspec.msgpack.encode(example).hex()}


if __name__ == "__main__":
    forms = {name: frozen_form(example) for name, example in sorted(EXAMPLES.items())}
    GOLDEN.write_text(json.dumps(forms, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
