from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.recorder import record_run
from actors.recorder.folder import Manifest, is_usable_name
from messages.base import ROOT, BoundaryError, Usage
from messages.codec import encode, to_json
from messages.events import Built, CandidateBuilt, CandidateEvaluated, CandidateWritten, Event
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    Decided,
    EditsApplied,
    Fact,
    IncumbentChanged,
    NodeInserted,
    SearchOpened,
)
from messages.models import Quote
from messages.settings import SearchSettings
from messages.tasks import Candidate, SourceFile, Target
from messages.verdicts import DidNotBuild, Interval, Measured, Wrong

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

RUN = "r1"
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 13", device="CPU")
MEASURED = Measured(
    timed=True, latency_us=5.0, speedup_vs_reference=2.0, speedup_interval=Interval(low=1.9, high=2.1), pairs=9
)


def candidate(text: str, *more: tuple[str, str]) -> Candidate:
    files = (("kernel.cpp", text), *more)
    return Candidate(
        language="cpp", entry_point="f", files=tuple(SourceFile(path=path, text=code) for path, code in files)
    )


def written(of: Candidate | None, job_id: str = "w1") -> CandidateWritten:
    return CandidateWritten(
        job_id=job_id,
        branch_id="b1",
        candidate=of,
        complaint="" if of else "no code",
        prompt="Make it fast.",
        answer="```cpp\n```",
        model="m",
        usage=Usage(),
        latency_s=1.0,
    )


def evaluated(of: Candidate, verdict: Measured | Wrong, job_id: str = "e1") -> CandidateEvaluated:
    return CandidateEvaluated(job_id=job_id, candidate_id=of.candidate_id, verdict=verdict, device="CPU", wall_s=2.0)


def branch(number: int, of: Candidate, parent_id: str, credit: float) -> tuple[Fact, ...]:
    """Facts by which a candidate of a new node `n<number>` becomes the incumbent."""
    node_id, branch_id = f"n{number}", f"b{number}"
    return (
        NodeInserted(
            node_id=node_id,
            parent_id=parent_id,
            title=f"Idea {number}",
            description="",
            difficulty=1,
            priority=0.5,
            origin="machine",
        ),
        BranchStarted(branch_id=branch_id, node_id=node_id, base_id=None),
        AttemptFinished(
            branch_id=branch_id,
            candidate_id=of.candidate_id,
            fate="measured",
            outcome="",
            credit=credit,
            speedup=credit + 0.1,
            latency_us=5.0,
            round=number,
            improved=True,
        ),
        IncumbentChanged(
            candidate_id=of.candidate_id,
            node_id=node_id,
            round=number,
            credit=credit,
            speedup=credit + 0.1,
            latency_us=5.0,
        ),
        BranchClosed(branch_id=branch_id, node_id=node_id, reason="done", best_id=of.candidate_id),
    )


OPENED = SearchOpened(run_id=RUN, task_id="t", target=TARGET, settings=SearchSettings(), seed=1)


class Recording:
    """A stream, and a recorder of it that may be started as often as one likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.bus = MemoryBus(lambda _: self.store, now=lambda: "2026-01-31T12:00:00+00:00")
        self._last_decision = 0
        self._count = 0

    async def publish(self, *events: Event) -> None:
        await self.bus.open_stream(RUN)
        for event in events:
            self._count += 1
            await self.bus.publish(RUN, encode(event), msg_id=f"m{self._count}")

    async def decide(self, *facts: Fact) -> None:
        self._count += 1
        self._last_decision = await self.bus.publish(
            RUN,
            encode(Decided(cause=1, facts=facts)),
            msg_id=f"m{self._count}",
            expected_last_decision=self._last_decision,
        )

    async def record(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run a recorder until it has nothing to do, or until `meanwhile` has returned."""

        async def start(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await record_run(self.bus, run_id=RUN, folder=self.folder, task_status=task_status)

        async with anyio.create_task_group() as tasks:
            await tasks.start(start)
            await (meanwhile() if meanwhile else anyio.sleep(1))
            tasks.cancel_scope.cancel()

    def names(self, of: Candidate) -> set[str]:
        folder = self.folder / "candidates" / of.candidate_id
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    def text(self, *names: str) -> str:
        return self.folder.joinpath(*names).read_text(encoding="utf-8")

    def json(self, *names: str) -> Any:
        return json.loads(self.text(*names))


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "run")


async def test_a_candidate_lies_under_its_hash_with_prompt_and_answer(recording: Recording) -> None:
    code = candidate("int x;", ("detail/loop.hpp", "int y;"))
    await recording.publish(written(code))
    await recording.record()
    assert recording.names(code) == {"kernel.cpp", "detail/loop.hpp", "prompt.md", "answer.md", "candidate.json"}
    assert recording.text("candidates", code.candidate_id, "detail/loop.hpp") == "int y;"
    assert recording.text("candidates", code.candidate_id, "prompt.md") == "Make it fast."
    assert recording.json("candidates", code.candidate_id, "candidate.json")["files"] == [
        "kernel.cpp",
        "detail/loop.hpp",
    ]


async def test_prompt_and_answer_are_kept_whole_though_the_event_quotes(recording: Recording) -> None:
    base, code = candidate("int base;"), candidate("int x;")
    quotes = (Quote(at=3, source=base.candidate_id, path="kernel.cpp"), Quote(at=3, source="0" * 32, path="gone"))
    quoting = msgspec.structs.replace(
        written(code, "w2"),
        prompt="On . Go!",
        prompt_quotes=quotes,
        answer="So: ",
        answer_quotes=(Quote(at=4, source=code.candidate_id, path="kernel.cpp"),),
    )
    await recording.publish(written(base), quoting)
    await recording.record()
    assert recording.text("candidates", code.candidate_id, "answer.md") == "So: int x;"
    prompt = recording.text("candidates", code.candidate_id, "prompt.md")
    assert prompt == f"On int base;[a passage of {'0' * 32!r}, which this run has not]. Go!"


async def test_a_quote_of_another_folders_file_is_none(recording: Recording) -> None:
    manifest = Manifest(
        candidate_id="", language="", entry_point="", files=("secret",), job_id="", branch_id="", model=""
    )
    recording.folder.mkdir(parents=True)
    (recording.folder / "secret").write_text("a key")
    (recording.folder / "candidate.json").write_bytes(to_json(manifest))
    code = candidate("int x;")
    quotes = (Quote(at=0, source="..", path="secret"),)
    await recording.publish(msgspec.structs.replace(written(code), prompt="", prompt_quotes=quotes))
    await recording.record()
    assert "which this run has not" in recording.text("candidates", code.candidate_id, "prompt.md")


async def test_what_the_compiler_said_is_kept_and_a_refusal_is_the_verdict(recording: Recording) -> None:
    good, bad = candidate("good"), candidate("bad")
    await recording.publish(written(good), written(bad, "w2"))
    for code, outcome in ((good, Built(artifact_id="a", log="1 warning")), (bad, DidNotBuild(reason="no ;", log="E"))):
        await recording.publish(
            CandidateBuilt(job_id="b1", candidate_id=code.candidate_id, outcome=outcome, target=TARGET)
        )
    await recording.record()
    assert recording.text("candidates", good.candidate_id, "build.log") == "1 warning"
    assert "verdict.json" not in recording.names(good)
    assert recording.json("candidates", bad.candidate_id, "verdict.json")["verdict"] == {
        "type": "did_not_build",
        "reason": "no ;",
        "log": "E",
    }


async def test_the_latest_verdict_is_the_one_that_is_kept_also_after_a_replay(recording: Recording) -> None:
    code = candidate("int x;")
    await recording.publish(written(code), evaluated(code, Wrong(reason="off")), evaluated(code, MEASURED, "e2"))
    for _ in range(2):
        await recording.record()
        kept = recording.json("candidates", code.candidate_id, "verdict.json")
        assert (kept["verdict"]["type"], kept["job_id"], kept["device"], kept["wall_s"]) == ("measured", "e2", "CPU", 2)


async def test_a_confirmed_candidate_keeps_the_verdict_of_its_screening_also_after_a_replay(
    recording: Recording,
) -> None:
    code = candidate("int x;")
    confirmed = msgspec.structs.replace(evaluated(code, Wrong(reason="off"), "e2"), purpose="confirm")
    await recording.publish(written(code), evaluated(code, MEASURED), confirmed)
    for _ in range(2):
        await recording.record()
        kept = [recording.json("candidates", code.candidate_id, name) for name in ("verdict.json", "screen.json")]
        assert [(found["verdict"]["type"], found["purpose"]) for found in kept] == [
            ("wrong", "confirm"),
            ("measured", "screen"),
        ]


async def test_an_answer_without_a_candidate_makes_no_candidate_and_is_kept_as_an_attempt(recording: Recording) -> None:
    await recording.publish(written(None))
    await recording.record()
    assert not (recording.folder / "candidates").exists()
    assert recording.text("attempts", "w1", "prompt.md") == "Make it fast."
    assert recording.text("attempts", "w1", "answer.md") == written(None).answer
    assert recording.json("attempts", "w1", "attempt.json")["candidate_id"] is None


@pytest.mark.parametrize("job_id", ["../w1", "a/b", "..", ".hidden", "x" * 300])
async def test_a_job_whose_name_leads_elsewhere_is_kept_in_the_journal_only(recording: Recording, job_id: str) -> None:
    await recording.publish(written(None, job_id))
    await recording.record()
    assert not (recording.folder / "attempts").exists()
    assert not list(recording.folder.parent.glob("w1*"))


async def test_each_answer_is_kept_once_and_says_where_its_texts_lie(recording: Recording) -> None:
    code = candidate("int x;")
    await recording.publish(written(code), written(code, "w2"))
    await recording.record()
    first, second = (recording.json("attempts", job, "attempt.json") for job in ("w1", "w2"))
    assert first["texts"] == f"candidates/{code.candidate_id}"
    assert second["texts"] == "attempts/w2"
    assert first["candidate_id"] == second["candidate_id"] == code.candidate_id
    assert not (recording.folder / "attempts" / "w1" / "prompt.md").exists()
    assert recording.text("attempts", "w2", "prompt.md") == "Make it fast."


async def test_the_best_is_there_with_its_files_and_how_it_was_found(recording: Recording) -> None:
    first, second = candidate("first", ("old.hpp", "")), candidate("second")
    await recording.publish(written(first), evaluated(first, MEASURED))
    await recording.decide(OPENED, *branch(1, first, ROOT, 1.5))
    await recording.publish(written(second, "w2"), evaluated(second, MEASURED, "e2"))
    await recording.decide(*branch(2, second, "n1", 1.9))
    await recording.record()
    assert {path.name for path in (recording.folder / "best").iterdir()} == {"kernel.cpp", "evidence.json"}
    assert recording.text("best", "kernel.cpp") == "second"
    evidence = recording.json("best", "evidence.json")
    assert evidence["candidate_id"] == second.candidate_id
    assert evidence["found_by"] == ["Idea 1", "Idea 2"]
    assert (evidence["round"], evidence["node_id"], evidence["credit"]) == (2, "n2", 1.9)
    assert evidence["evaluation"]["verdict"]["speedup_interval"] == {"low": 1.9, "high": 2.1}
    assert evidence["candidate"]["entry_point"] == "f"
    assert not [path.name for path in recording.folder.iterdir() if path.name.startswith(".")]


async def test_the_world_model_is_there_as_of_the_latest_update(recording: Recording) -> None:
    idea = NodeInserted(node_id="n1", parent_id=ROOT, title="Idea", description="", difficulty=1, priority=0.5)
    more = NodeInserted(node_id="n2", parent_id=ROOT, title="More", description="", difficulty=1, priority=0.4)
    await recording.publish(written(None))
    await recording.decide(OPENED, EditsApplied(job_id="p1", changes=(idea,), summary="Memory bound."))
    await recording.decide(EditsApplied(job_id="p2", changes=(more,)))
    await recording.record()
    latest = recording.json("world_model", "latest.json")
    assert [node["title"] for node in latest["nodes"]] == ["reference", "Idea", "More"]
    assert latest["summary"] == "Memory bound."
    path = recording.folder / "world_model" / "latest.json"
    before = path.stat().st_ino
    await recording.record()
    assert path.stat().st_ino == before, "an older one does not take its place"


async def test_a_replay_writes_what_is_missing_and_touches_nothing_else(recording: Recording) -> None:
    code = candidate("int x;")
    await recording.publish(written(code), evaluated(code, MEASURED))
    await recording.decide(OPENED, *branch(1, code, ROOT, 1.5))
    await recording.record()
    paths = [path for path in recording.folder.rglob("*") if path.is_file()]
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}
    assert len(before) == 8
    await recording.record()
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths} == before
    (recording.folder / "best" / "evidence.json").unlink()
    await recording.record()
    assert recording.json("best", "evidence.json")["candidate_id"] == code.candidate_id


async def test_a_candidate_that_was_half_written_is_written_again(recording: Recording) -> None:
    code = candidate("int x;")
    folder = recording.folder / "candidates" / code.candidate_id
    folder.mkdir(parents=True)
    (folder / "kernel.cpp").write_text("int", encoding="utf-8")
    await recording.publish(written(code))
    await recording.record()
    assert recording.text("candidates", code.candidate_id, "kernel.cpp") == "int x;"


async def test_a_recorder_that_is_stopped_first_writes_down_what_was_published(recording: Recording) -> None:
    codes = [candidate(f"int x{number};") for number in range(300)]

    async def publish_all() -> None:
        await recording.publish(*(written(code, f"w{number}") for number, code in enumerate(codes)))

    await recording.publish(written(candidate("int x;"), "w"))
    await recording.record(publish_all)
    assert all("candidate.json" in recording.names(code) for code in codes)


@pytest.mark.parametrize(
    "name",
    [
        "../up.cpp",
        "/etc/passwd",
        "a/../../up.cpp",
        "..",
        ".",
        "",
        "/",
        "a//b",
        "./a",
        "a/",
        "verdict.json",
        "screen.json",
        "Prompt.MD",
        ".hidden",
        "a/.b.new",
        "c:\\x",
        "nul\0",
        "x" * 250,
    ],
)
async def test_a_name_that_a_model_chose_cannot_leave_its_folder_or_hide_ours(recording: Recording, name: str) -> None:
    code = candidate("int x;", (name, "evil"))
    await recording.publish(written(code))
    with capture_logs() as logs:
        await recording.record()
    assert not is_usable_name(name)
    assert recording.names(code) == {"kernel.cpp", "prompt.md", "answer.md", "candidate.json"}
    assert {path.name for path in recording.folder.parent.iterdir()} == {"run"}
    assert [entry["name"] for entry in logs] == [name]


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a", "a")])
async def test_names_that_exclude_each_other_do_not_stop_the_recorder(
    recording: Recording, first: str, second: str
) -> None:
    code = candidate("int x;", (first, "1"), (second, "2"))
    await recording.publish(written(code))
    await recording.record()
    assert recording.names(code) == {"kernel.cpp", first, "prompt.md", "answer.md", "candidate.json"}
    assert recording.text("candidates", code.candidate_id, first) == "1"


async def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file", encoding="utf-8")
    recording = Recording(tmp_path / "run")
    await recording.publish(written(candidate("int x;")))
    with pytest.raises(ExceptionGroup) as caught:
        await recording.record()
    assert caught.group_contains(BoundaryError, match=r"cannot write .*run")
