"""One example of everything that travels or is kept, each field set, and the frozen form of each in `golden.json`.

After a change that is meant, and that old journals survive: `python tests/messages/examples.py` writes the file anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from messages.base import Usage
from messages.codec import Record, to_json
from messages.commands import BuildCandidate, EvaluateCandidate, WriteCandidate
from messages.edits import EditScript, Insert, Proposal, Prune, Refusal, Split, Update
from messages.events import (
    Built,
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    ClockTicked,
    EditsProposed,
    JobLost,
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
    RunFinished,
    RunStopping,
    SearchOpened,
    SearchReopened,
    SpendRecorded,
    TimeNoted,
    WriteRequested,
)
from messages.faults import EndpointFault
from messages.settings import Budget, SearchSettings, Selection
from messages.tasks import (
    Action,
    AttemptBrief,
    Candidate,
    Scorer,
    SourceFile,
    Target,
    TaskDescription,
    TaskSpec,
    TensorSpec,
    Tolerance,
)
from messages.verdicts import (
    CallCheck,
    Crashed,
    DidNotBuild,
    Interval,
    Measured,
    Outpaced,
    Quarantined,
    Rejected,
    Scored,
    TimedOut,
    Unstable,
    Wrong,
)

GOLDEN = Path(__file__).with_name("golden.json")

INTERVAL = Interval(low=1.5, high=1.75)
FAULT = EndpointFault(kind="rate_limited", status=429, detail="slow down", elapsed_s=0.25, retry_after_s=2.0)
USAGE = Usage(calls=1, prompt_tokens=1200, cached_tokens=800, completion_tokens=300)
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 13.2.0", device="AMD EPYC")
CANDIDATE = Candidate(
    language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text="int x = 0;\n// ±\n"),)
)
TASK = TaskSpec(name="gate.py", source="kernelbench", text="class Model: ...", tolerance=Tolerance(rtol=0.01, atol=0.5))
PROGRAM_TASK = TaskSpec(
    name="initial.py",
    source="program",
    text="def solve(): ...",
    tolerance=Tolerance(rtol=0.01, atol=0.5),
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
)
SETTINGS = SearchSettings(
    branches=2,
    stagnation_window=3,
    max_difficulty=4,
    max_new_nodes=6,
    max_tries=2,
    refusals=1,
    max_idle_attempts=30,
    max_lost=4,
    budget=Budget(max_rounds=10, wall_clock_s=600.0, max_calls=50, max_tokens=100000, target_speedup=4.0),
    selection=Selection(
        rule="spread", exploration=0.1, virtual_loss=0.2, evidence=0.3, difficulty=0.05, failure_decay=0.4
    ),
)
REFUSAL = Refusal(index=1, reason="no node 'n9'")
INSERTED = NodeInserted(
    node_id="n3", parent_id="n1", title="Fuse", description="One pass.", difficulty=2, priority=0.75, origin="machine"
)
UPDATED = NodeUpdated(node_id="n1", title="Block", description="By rows.", difficulty=3, priority=0.5)
PRUNED = NodePruned(node_id="n2", reason="tried")
INSERT = Insert(parent="n1", title="Fuse", description="One pass.", difficulty=2, priority=0.75, key="k1")
MEASURED = Measured(
    timed=True,
    latency_us=12.5,
    reference_latency_us=20.0,
    speedup_vs_reference=1.6,
    speedup_interval=INTERVAL,
    pairs=30,
    checks=(CallCheck(family="given", max_abs_error=0.001, error_ratio=0.25),),
    reference_dtype="float64",
    notes=("denormals flushed",),
)

VERDICTS = (
    MEASURED,
    Scored(score=0.625, metrics={"combined_score": 0.625, "stage": "full"}, notes=("log: slow start",)),
    Outpaced(reason="half as fast", speedup_interval=INTERVAL),
    Unstable(reason="too wide", speedup_interval=INTERVAL),
    Wrong(
        reason="3 of 4 wrong",
        family="centred",
        wrong_elements=3,
        elements=4,
        first_wrong=(0, 1),
        max_abs_error=2.5,
        patterns=("tail columns",),
    ),
    DidNotBuild(reason="expected ';'", log="kernel.cpp:1: error"),
    Crashed(reason="signal 11", stage="check", log="Segmentation fault"),
    TimedOut(reason="10 s", stage="check", limit_s=10.0),
    Rejected(reason="calls system()", rule="no processes"),
    Quarantined(reason="faster than memory", speedup_interval=INTERVAL),
)
EDITS = (
    INSERT,
    Update(node="n1", priority=0.5, difficulty=3, title="Block", description="By rows."),
    Prune(node="n2", reason="tried"),
    Split(
        node="n4",
        into=(
            Proposal(title="A", description="a", difficulty=1, priority=0.25),
            Proposal(title="B", description="b", difficulty=5, priority=1.0),
        ),
    ),
)
SCRIPT = EditScript(summary="Bound by memory.", open_questions=("Cache size?",), edits=EDITS)
FACTS = (
    SearchOpened(run_id="r1", task_id="7a", target=TARGET, settings=SETTINGS, seed=7, initial_id="c0"),
    SearchReopened(budget=Budget(max_rounds=20), lost_calls=3),
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
    BranchStarted(branch_id="b1", node_id="n1", base_id="c0", attempt_limit=1),
    WriteRequested(
        job_id="j1", branch_id="b1", mode="improve", base_id="c0", current_id="c1", complaint="no code block"
    ),
    BuildRequested(job_id="j2", branch_id="b1", candidate_id="c1"),
    EvaluationRequested(job_id="j3", branch_id="b1", candidate_id="c1", artifact_id="a1", purpose="confirm"),
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
    ),
    CandidateAwaited(branch_id="b2", candidate_id="c1"),
    BranchClosed(branch_id="b1", node_id="n1", reason="stagnation", best_id="c1"),
    IncumbentChanged(candidate_id="c1", node_id="n1", round=4, credit=1.5, speedup=1.6, latency_us=12.5),
    QuestionDropped(job_id="j1"),
    SpendRecorded(role="coder", usage=USAGE),
    TimeNoted(elapsed_s=12.5),
    LossNoted(job_id="j3", error="device lost", permanent=True),
    RunStopping(stopped_by="rounds", detail="10 of 10"),
    RunFinished(stopped_by="rounds", detail="10 of 10", rounds=10, best_id="c1", credit=1.5, speedup=1.6),
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
    ),
    RunResumed(run_id="r1", budget=Budget(max_rounds=20)),
    CandidateWritten(
        job_id="j1",
        branch_id="b1",
        candidate=CANDIDATE,
        complaint="",
        declined="all variants were tried",
        prompt="Make it fast.",
        answer="```cpp\n```",
        model="offline",
        usage=USAGE,
        latency_s=1.5,
        faults=(FAULT,),
    ),
    CandidateBuilt(
        job_id="j2",
        candidate_id="c1",
        outcome=Built(artifact_id="a1", log="1 warning"),
        target=TARGET,
        cached=True,
        wall_s=1.5,
        cpu_s=1.25,
    ),
    CandidateEvaluated(
        job_id="j3",
        candidate_id="c1",
        verdict=MEASURED,
        purpose="confirm",
        device="AMD EPYC",
        wall_s=2.0,
        lease_s=0.5,
    ),
    EditsProposed(
        job_id="j4",
        script=SCRIPT,
        complaint="",
        prompt="What next?",
        answer="{}",
        model="offline",
        usage=USAGE,
        latency_s=1.5,
        faults=(FAULT,),
    ),
    JobLost(job_id="j3", kind="write", error="no such model", permanent=True, faults=(FAULT,)),
    ClockTicked(elapsed_s=12.5),
    StopRequested(reason="interrupted"),
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
        current=CANDIDATE,
        current_verdict=MEASURED,
        history=(AttemptBrief(number=1, fate="wrong", outcome="off by one"),),
        complaint="no code block",
        sample=1,
    ),
    BuildCandidate(job_id="j2", run_id="r1", candidate=CANDIDATE, target=TARGET),
    EvaluateCandidate(
        job_id="j3",
        run_id="r1",
        task=TASK,
        candidate=CANDIDATE,
        artifact_id="a1",
        target=TARGET,
        purpose="confirm",
    ),
)
RECORD = Record(seq=4, at="2026-01-31T12:00:00.000000+00:00", msg_id="r1.d3", body=DECIDED)

EXAMPLES: dict[str, msgspec.Struct] = {
    type(example).__name__: example
    for example in (*EVENTS, DECIDED, *COMMANDS, *VERDICTS, *EDITS, SCRIPT, *FACTS, RECORD)
}


def frozen_form(example: msgspec.Struct) -> dict[str, object]:
    """Return what `golden.json` keeps of an example: as JSON for people, as msgpack to the byte."""
    return {"json": json.loads(to_json(example)), "msgpack": msgspec.msgpack.encode(example).hex()}


if __name__ == "__main__":
    forms = {name: frozen_form(example) for name, example in sorted(EXAMPLES.items())}
    GOLDEN.write_text(json.dumps(forms, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
