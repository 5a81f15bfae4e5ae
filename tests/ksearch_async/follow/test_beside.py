"""Notices of a run at a real webhook: what it gets, and that it can hang, fail and redirect as it likes."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from ksearch_async.follow.notices import noticed
from ksearch_async.runs.folder import RunFolder
from ksearch_async.settings.run_config import NotifySettings
from messages.base import BusError
from messages.codec import Record, encode_line
from messages.events import JobLost, JobsUnserved
from tests.actors.llm.endpoint import Endpoint, Replies, Reply, endpoint
from tests.ksearch_async.stories import RUN_ID, on_disk, records_of, story

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

OK = Reply(status=204)


def bodies(server: Endpoint) -> list[Mapping[str, Any]]:
    return [dict(request) for request in server.requests]


async def told_of(
    folder: RunFolder,
    replies: Replies = lambda _number: OK,
    *,
    after: int = 0,
    on: str = "best,finished,trouble",
    timeout_s: float = 10.0,
    **environment: str,
) -> tuple[Endpoint, list[EventDict]]:
    """Have notices of a run that is over sent, and return the webhook and what stands in the log."""
    async with endpoint(replies) as server:
        settings = NotifySettings(url=f"{server.url}/hooks/very-secret-token", on=on, timeout_s=timeout_s)
        with capture_logs() as logs:
            async with noticed(folder, settings, environment, after=after):
                pass
    return server, list(logs)


async def test_a_webhook_is_told_of_the_best_and_of_the_end_with_figures(tmp_path: Path) -> None:
    server, logs = await told_of(on_disk(tmp_path, story()))
    best, finished = bodies(server)
    assert (best["kind"], best["run"], best["task"], best["version"]) == ("best", RUN_ID, "relu", 1)
    assert best["text"] == f"{RUN_ID}: new best: 2.00x [1.90, 2.10], 50.0 us, round 2"
    figures = best["figures"]
    assert (figures["speedup"], figures["speedup_low"], figures["speedup_high"]) == (2.0, 1.9, 2.1)
    assert (figures["latency_us"], figures["rounds"], figures["max_rounds"]) == (50.0, 2, 2)
    assert (finished["kind"], finished["figures"]["stopped_by"]) == ("finished", "rounds")
    assert best["id"] != finished["id"]
    assert [(line["event"], line["sent"]) for line in logs] == [("notices were delivered", 2)]
    assert server.paths == ["/v1/hooks/very-secret-token"] * 2


async def test_no_word_of_a_kernel_or_a_model_is_in_a_notice(tmp_path: Path) -> None:
    server, _ = await told_of(on_disk(tmp_path, story()))
    sent = json.dumps(server.requests)
    for words in ("// fast", "fuse the passes", "17 of 64", "secret of a long prompt", "class Model"):
        assert words not in sent


async def test_only_what_is_asked_for_is_told_and_nothing_old(tmp_path: Path) -> None:
    records = story()
    server, _ = await told_of(on_disk(tmp_path, records), on="finished")
    assert [each["kind"] for each in bodies(server)] == ["finished"]
    server, _ = await told_of(RunFolder(tmp_path / RUN_ID), after=records[-2].seq)
    assert [each["kind"] for each in bodies(server)] == ["finished"]


async def test_a_body_is_signed_with_the_environments_secret(tmp_path: Path) -> None:
    async with endpoint(lambda _number: OK) as server:
        settings = {"KSEARCH_NOTIFY": server.url, "KSEARCH_NOTIFY_SECRET": "between us"}
        async with noticed(on_disk(tmp_path, story()), NotifySettings(on="finished"), settings, after=0):
            pass
    (head,), (body,) = server.heads, server.requests
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    signed = f"{headers['x-ksearch-timestamp']}.".encode() + json.dumps(body, separators=(",", ":")).encode()
    digest = hmac.new(b"between us", signed, hashlib.sha256).hexdigest()
    assert headers["x-ksearch-signature"] == f"sha256={digest}"
    assert headers["x-ksearch-delivery"] == body["id"]


@pytest.mark.long
async def test_what_fails_for_a_moment_is_sent_again_under_its_id(tmp_path: Path) -> None:
    replies = [Reply(status=503), Reply(drops=True), OK]
    server, logs = await told_of(on_disk(tmp_path, story()), lambda number: replies[min(number, 2)], on="finished")
    assert len({each["id"] for each in bodies(server)}) == 1
    assert len(server.requests) == 3
    assert [line["event"] for line in logs] == ["notices were delivered"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=404),
        Reply(status=302, headers=("Location: /elsewhere",)),
        Reply(status=307, headers=("Location: http://127.0.0.2:9/",)),
    ],
    ids=["refused", "redirected by GET", "redirected to another host"],
)
async def test_what_will_not_pass_is_said_without_the_address_and_not_tried_again(reply: Reply, tmp_path: Path) -> None:
    server, logs = await told_of(on_disk(tmp_path, story()), lambda _number: reply, on="finished")
    assert len(server.requests) == 1
    assert [line["event"] for line in logs] == [
        "a notice was not delivered; the run goes on",
        "notices were not delivered",
    ]
    assert logs[1]["dropped"] == 1
    assert "very-secret-token" not in str(logs)


async def test_a_redirect_on_the_same_host_is_followed(tmp_path: Path) -> None:
    replies = [Reply(status=308, headers=("Location: /there",)), OK]
    server, _ = await told_of(on_disk(tmp_path, story()), lambda number: replies[number], on="finished")
    assert len(server.requests) == 2
    assert server.requests[0] == server.requests[1]


async def test_a_webhook_that_hangs_holds_up_neither_the_search_nor_for_long_its_end(tmp_path: Path) -> None:
    async with endpoint(lambda _number: Reply(hangs=True)) as server:
        settings = NotifySettings(url=server.url, timeout_s=300.0)
        with capture_logs() as logs, anyio.move_on_after(60) as bound:
            with anyio.CancelScope() as now:
                async with noticed(on_disk(tmp_path, story()), settings, {}, after=0):
                    now.cancel()
                    await anyio.sleep_forever()
    assert not bound.cancelled_caught
    assert logs[-1]["event"] == "notices were not delivered"


async def test_trouble_is_told_once_in_a_while_and_without_the_errors_text(tmp_path: Path) -> None:
    lost = [JobLost(job_id=f"j{n}", kind="evaluate", error="int main() {}") for n in range(5)]
    nobody = JobsUnserved(kind="write", queue="q", role="coder", waiting_s=9.0, detail="start one")
    records = story(None)
    records += records_of([*lost, nobody], after=records[-1].seq)
    server, _ = await told_of(on_disk(tmp_path, records), on="trouble")
    assert [each["text"].partition(": ")[2] for each in bodies(server)] == [
        "the infrastructure lost a job (evaluate), which is tried again",
        "jobs wait, and there is no coder who can do them",
    ]


async def test_a_session_that_fails_says_so(tmp_path: Path) -> None:
    async with endpoint(lambda _number: OK) as server:
        settings = NotifySettings(url=server.url, on="trouble")
        with pytest.raises(BaseExceptionGroup) as caught:
            async with noticed(on_disk(tmp_path, story(None)), settings, {}, after=0):
                raise BusError("the disk is full of secrets")
    assert caught.group_contains(BusError)
    (told,) = bodies(server)
    assert told["text"] == f"{RUN_ID}: the session failed; ksearch resume {RUN_ID} goes on"


async def test_news_are_sent_while_the_search_goes_on(tmp_path: Path) -> None:
    records = story()
    folder = on_disk(tmp_path, records[:1])
    has_come = anyio.Event()

    def reply(_number: int) -> Reply:
        has_come.set()
        return OK

    async with endpoint(reply) as server, noticed(folder, NotifySettings(url=server.url, on="best"), {}, after=0):
        append(folder, records[1:])
        with anyio.fail_after(60):
            await has_come.wait()
    assert [each["kind"] for each in bodies(server)] == ["best"]


def append(folder: RunFolder, records: list[Record]) -> None:
    with folder.journal.open("ab") as journal:
        journal.write(b"".join(map(encode_line, records)))
