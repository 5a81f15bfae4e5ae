"""What the dashboard's interface answers, over a real port: history, updates, lists and parts of runs."""

from __future__ import annotations

import fcntl
import gzip
import json
import socket
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pytest

from actors.bus.journal import read_journal
from ksearch_async.runs.folder import RunFolder
from ksearch_async.views.web.runs import FolderPlace
from ksearch_async.views.web.updates import updates_of
from messages.codec import Record, encode_line
from messages.events import CandidateWritten
from messages.models import Quote
from messages.verdicts import Wrong
from tests.ksearch_async.stories import (
    FASTER_KERNEL,
    KERNEL,
    RUN_ID,
    SLOPPY,
    TASK,
    attempt,
    decided,
    inserted,
    on_disk,
    records_of,
    sequel,
    story,
)
from tests.ksearch_async.views.web.dashboards import PATIENCE_S, dashboard, events, events_of, until

pytestmark = pytest.mark.anyio
JOURNAL = Path(__file__).parents[4] / "docs" / "benchmarks" / "journals" / "rmsnorm_silu_2_h200.jsonl.gz"
HISTORY = f"/api/runs/{RUN_ID}/history"
UPDATES = f"/api/runs/{RUN_ID}/updates"


async def got(client: httpx.AsyncClient, path: str) -> Any:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def recorded(runs_dir: Path) -> list[Record]:
    """Put a run on a GPU among the runs, under the stories' name, and return its records."""
    folder = RunFolder(runs_dir / RUN_ID)
    folder.path.mkdir()
    with gzip.open(JOURNAL) as packed:
        folder.journal.write_bytes(packed.read())
    return list(read_journal(folder.journal))


def as_json(records: list[Record]) -> list[Any]:
    return [json.loads(msgspec.json.encode(update)) for update in updates_of(records)]


def append(folder: RunFolder, records: list[Record]) -> None:
    with folder.journal.open("ab") as journal:
        journal.write(b"".join(map(encode_line, records)))


async def test_the_history_is_what_folding_the_journal_gives(tmp_path: Path) -> None:
    records = recorded(tmp_path)
    async with dashboard(tmp_path) as client:
        told = await got(client, HISTORY)
        packed = await client.get(HISTORY, headers={"Accept-Encoding": "gzip"})
        plain = await client.get(HISTORY, headers={"Accept-Encoding": "identity"})
    assert told == {"updates": as_json(records), "last_seq": records[-1].seq}
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content


async def test_updates_go_on_behind_the_one_that_is_known_and_come_as_the_run_goes_on(tmp_path: Path) -> None:
    folder = on_disk(tmp_path, story(None))
    known, expected = len(story(None)), as_json(sequel())
    async with dashboard(tmp_path) as client:
        assert [event.data for event in await events(client, f"{UPDATES}?after=3", 2)] == expected[3:5]
        async with client.stream("GET", f"{UPDATES}?after={known}") as response:
            append(folder, sequel()[known:])
            reading = events_of(response)
            with anyio.fail_after(PATIENCE_S):
                told = [await anext(reading) for _ in expected[known:]]
    assert [event.data for event in told] == expected[known:]
    assert [event.number for event in told] == [update["seq"] for update in expected[known:]]
    assert {event.kind for event in told} == {"update"}


async def test_the_last_event_that_a_page_saw_counts_more_than_its_address(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    async with dashboard(tmp_path) as client:
        told = await events(client, f"{UPDATES}?after=2", 1, headers={"Last-Event-ID": "7"})
        bad = await client.get(f"{UPDATES}?after=two")
        worse = await client.get(f"{UPDATES}?after={'9' * 400}")
    assert told[0].number == 8
    assert (bad.status_code, worse.status_code) == (400, 400)


async def test_a_page_that_knows_more_than_there_is_is_told_to_begin_anew(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    async with dashboard(tmp_path) as client:
        told = await events(client, f"{UPDATES}?after=999", 2)
    assert [(event.kind, event.data) for event in told] == [("reset", {"last_seq": len(story())})]


async def test_a_run_whose_journal_is_replaced_is_read_anew(tmp_path: Path) -> None:
    folder = on_disk(tmp_path, sequel())
    async with dashboard(tmp_path) as client:
        async with client.stream("GET", f"{UPDATES}?after={len(sequel())}") as response:
            fresh = tmp_path / "fresh"
            fresh.write_bytes(b"".join(map(encode_line, story())))
            fresh.replace(folder.journal)
            with anyio.fail_after(PATIENCE_S):
                told = [event async for event in events_of(response)]
        assert [event.kind for event in told] == ["trouble"]
        assert "was replaced" in told[0].data["error"]
        assert (await got(client, HISTORY))["last_seq"] == len(story())


async def test_ten_watchers_get_everything_and_in_order(tmp_path: Path) -> None:
    records = recorded(tmp_path)
    folder = RunFolder(tmp_path / RUN_ID)
    folder.journal.write_bytes(b"".join(map(encode_line, records[:5])))
    wanted, told = as_json(records), dict[int, list[Any]]()

    async def watch(number: int) -> None:
        told[number] = [event.data for event in await events(client, UPDATES, len(wanted))]

    async with dashboard(tmp_path) as client, anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(watch, number)
        for record in records[5:]:
            append(folder, [record])
            await anyio.lowlevel.checkpoint()
    assert [told[number] == wanted for number in range(10)] == [True] * 10


async def test_a_watcher_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    known = len(story(None))
    long = [decided(inserted(f"n{number}", "n1", "x" * 1_000_000)) for number in range(2, 10)]
    folder = on_disk(tmp_path, story(None))
    async with dashboard(tmp_path) as client:
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect((client.base_url.host, client.base_url.port))
            idle.sendall(f"GET {UPDATES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            append(folder, records_of(long, after=known))
            told = await events(client, f"{UPDATES}?after={known}", len(long))
            assert (await got(client, HISTORY))["last_seq"] == known + len(long)
    assert [event.data["nodes"][0]["node_id"] for event in told] == [f"n{number}" for number in range(2, 10)]


async def test_the_list_has_all_runs_the_newest_first_and_tells_when_it_changes(tmp_path: Path) -> None:
    on_disk(tmp_path, story(), "old")
    on_disk(tmp_path, story(None), "killed")
    (tmp_path / "begun").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "journal.jsonl").write_bytes(b"nothing of ours\n{}\n")

    async with dashboard(tmp_path) as client:
        rows = {row["run_id"]: row for row in await until(lambda: all_read(client, 3))}
        assert {name: row["standing"] for name, row in rows.items()} == {
            "old": "finished",
            "killed": "stopped",
            "torn": "damaged",
        }
        assert "line 1" in rows["torn"]["error"]
        old = rows["old"]
        assert (old["task"], old["language"], old["device"]) == (TASK.name, "cpp", "AMD EPYC")
        assert (old["stopped_by"], old["rounds"], old["max_rounds"]) == ("rounds", 2, 2)
        assert (old["speedup"], old["credit"], old["place"]) == (2.0, 1.9, "folder")
        async with client.stream("GET", "/api/events") as response:
            reading = events_of(response)
            first = await anext(reading)
            assert {row["run_id"] for row in first.data["runs"]} == {"old", "killed", "torn"}
            on_disk(tmp_path, sequel(), "new")
            with anyio.fail_after(PATIENCE_S):
                async for event in reading:
                    told = {row["run_id"]: row["standing"] for row in event.data["runs"]}
                    if told.get("new") == "stopped":
                        break


async def all_read(client: httpx.AsyncClient, count: int) -> list[Any]:
    rows: list[Any] = (await got(client, "/api/runs"))["runs"]
    return rows if len(rows) == count and all(row["standing"] != "unread" for row in rows) else []


async def test_a_run_that_somebody_works_on_is_told_to_go_on(tmp_path: Path) -> None:
    folder = on_disk(tmp_path, story(None))

    async def is_running() -> bool:
        return any(row["standing"] == "running" for row in (await got(client, "/api/runs"))["runs"])

    async def is_stopped() -> bool:
        return any(row["standing"] == "stopped" for row in (await got(client, "/api/runs"))["runs"])

    async with dashboard(tmp_path) as client:
        with folder.journal.open("rb") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            await until(is_running)
        await until(is_stopped)


async def test_a_node_is_told_with_all_that_was_asked_and_answered_for_it(tmp_path: Path) -> None:
    on_disk(tmp_path, sequel())
    async with dashboard(tmp_path) as client:
        first = await got(client, f"/api/runs/{RUN_ID}/nodes/n1")
        second = await got(client, f"/api/runs/{RUN_ID}/nodes/n2")
        root = await got(client, f"/api/runs/{RUN_ID}/nodes/n0")
        nobody = await client.get(f"/api/runs/{RUN_ID}/nodes/n99")
    assert (first["node"]["title"], first["node"]["parent_id"]) == ("fuse the passes", "n0")
    assert [(each["fate"], each["candidate_id"]) for each in first["attempts"]] == [
        ("wrong", SLOPPY.candidate_id),
        ("measured", KERNEL.candidate_id),
    ]
    assert first["attempts"][0]["prompt"] == "the secret of a long prompt"
    assert [each["candidate_id"] for each in second["attempts"]] == [FASTER_KERNEL.candidate_id]
    assert root["attempts"] == []
    assert nobody.status_code == 404
    assert nobody.json()["error"] == "this run has no node 'n99'"


async def test_what_a_prompt_quotes_is_put_back_though_it_stands_in_another_nodes_record(tmp_path: Path) -> None:
    records = sequel()
    last = max(index for index, record in enumerate(records) if isinstance(record.body, CandidateWritten))
    written = records[last].body
    assert isinstance(written, CandidateWritten)
    quote = Quote(source=KERNEL.candidate_id, path="kernel.cpp", at=6, chars=7)
    quoting = msgspec.structs.replace(written, prompt="Begin ", prompt_quotes=(quote,))
    records[last] = msgspec.structs.replace(records[last], body=quoting)
    on_disk(tmp_path, records)
    async with dashboard(tmp_path) as client:
        told = await got(client, f"/api/runs/{RUN_ID}/nodes/n2")
    assert told["attempts"][0]["prompt"] == "Begin // fast"


async def test_a_candidate_is_told_with_its_files_and_verdicts(tmp_path: Path) -> None:
    on_disk(tmp_path, sequel())
    async with dashboard(tmp_path) as client:
        told = await got(client, f"/api/runs/{RUN_ID}/candidates/{FASTER_KERNEL.candidate_id}")
        unknown = await client.get(f"/api/runs/{RUN_ID}/candidates/{'0' * 32}")
    assert [file["path"] for file in told["files"]] == ["kernel.cpp", "rows.h"]
    assert (told["language"], told["entry_point"], told["node_id"]) == ("cpp", "ksearch_run", "n2")
    assert [each["verdict"]["type"] for each in told["verdicts"]] == ["measured"]
    assert unknown.status_code == 404


async def test_costs_and_task_are_told(tmp_path: Path) -> None:
    on_disk(tmp_path, sequel())
    async with dashboard(tmp_path) as client:
        costs = await got(client, f"/api/runs/{RUN_ID}/costs")
        task = await got(client, f"/api/runs/{RUN_ID}/task")
        nodes = await got(client, "/api/nodes")
        server = await got(client, "/api/server")
    assert (costs["total"]["calls"], costs["total"]["prompt_tokens"], costs["total"]["cost_usd"]) == (3, 30, None)
    assert task["task"]["text"] == TASK.text
    assert task["settings"]["budget"]["max_rounds"] == 2
    assert nodes["nodes"] == []
    assert server["place"] == "folder"


async def test_hostile_and_huge_texts_arrive_as_they_are(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\u202e\r\n\ndata: x\n\nevent: runs\n" + "x" * 1_000_000
    told = [*story(None), *records_of(attempt(20, FASTER_KERNEL, Wrong(reason=hostile)), after=len(story(None)))]
    on_disk(tmp_path, told)
    async with dashboard(tmp_path) as client:
        candidate = await got(client, f"/api/runs/{RUN_ID}/candidates/{FASTER_KERNEL.candidate_id}")
        streamed = await events(client, UPDATES, len(told))
    assert candidate["verdicts"][0]["verdict"]["reason"] == hostile
    assert [event.data for event in streamed] == as_json(told)


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "%2e", "..%2f..", "nobody", "%00", "a%2fb", "%F0%9F%98%80", "x" * 300]
)
async def test_no_name_leads_out_of_the_folder_of_runs(tmp_path: Path, name: str) -> None:
    on_disk(tmp_path, story(), "outside")
    runs = tmp_path / "runs"
    on_disk(runs, story())
    for folder in (tmp_path, runs):
        (folder / "journal.jsonl").write_bytes(b"".join(map(encode_line, story())))
    assert FolderPlace(runs).folder("../outside") is None
    async with dashboard(runs) as client:
        for path in (f"/api/runs/{name}/history", f"/api/runs/{name}/task", f"/static/{name}/app.py"):
            answer = await client.get(path)
            assert answer.status_code in (404, 405), path
            assert "error" in answer.json()
        neighbour = await client.get("/api/runs/..%2foutside/history")
    assert neighbour.status_code == 404


async def test_a_journal_that_no_planner_wrote_is_told_as_far_as_it_makes_sense_and_harms_no_other(
    tmp_path: Path,
) -> None:
    on_disk(tmp_path, story(), "other")
    edited = records_of([*(record.body for record in story(None)[:4]), *(record.body for record in sequel()[-5:])])
    on_disk(tmp_path, edited)
    async with dashboard(tmp_path) as client:
        assert (await got(client, HISTORY))["last_seq"] == 4
        told = await events(client, f"{UPDATES}?after=4", 1)
        rows = {row["run_id"]: row["standing"] for row in await until(lambda: all_read(client, 2))}
        assert (await got(client, "/api/runs/other/history"))["last_seq"] == len(story())
    assert told[0].kind == "trouble"
    assert "record 5 cannot follow" in told[0].data["error"]
    assert rows == {"other": "finished", RUN_ID: "damaged"}


async def test_a_journal_that_is_a_link_is_no_run(tmp_path: Path) -> None:
    on_disk(tmp_path, story(), "real")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "journal.jsonl").symlink_to(tmp_path / "real" / "journal.jsonl")
    async with dashboard(tmp_path) as client:
        assert (await client.get("/api/runs/linked/history")).status_code == 404
        assert [row["run_id"] for row in await until(lambda: all_read(client, 1))] == ["real"]


async def test_the_page_and_its_parts_are_served(tmp_path: Path) -> None:
    async with dashboard(tmp_path) as client:
        page = await client.get("/")
        script = await client.get("/static/app.js")
        missing = await client.get("/static/nothing.js")
    assert page.headers["content-type"].startswith("text/html")
    assert "javascript" in script.headers["content-type"]
    assert missing.status_code == 404
