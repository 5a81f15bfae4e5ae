"""Orders from the page: given to a run as commands give them, and whatever is none refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.bus.journal import read_journal
from ksearch_async.runs.folder import RunFolder, read_run
from ksearch_async.settings.run_config import RunConfig, save_config
from ksearch_async.views.web.app import MAX_BODY_BYTES
from messages.facts import RunPaused
from messages.steering import Instruct, NodeBoosted, NodeForbidden, NodePinned, NodeReleased, SteeringRequested
from tests.ksearch_async.runs.test_mailbox import facts_in, led_elsewhere
from tests.ksearch_async.stories import RUN_ID, on_disk, story
from tests.ksearch_async.views.web.dashboards import BEARER, dashboard

pytestmark = pytest.mark.anyio


async def order(client: httpx.AsyncClient, run_id: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/api/runs/{run_id}/orders", json=body, headers=BEARER)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def stopped_run(runs_dir: Path) -> RunFolder:
    folder = on_disk(runs_dir, story("interrupted"))
    save_config(RunConfig(task="relu.py"), folder.config)
    return folder


async def test_a_run_that_goes_on_takes_every_kind_of_order(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder), dashboard(tmp_path) as client:
        paused = await order(client, "r1", order="pause", reason="lunch")
        assert paused == {"done": True, "said": "run r1 paused: what is in flight is finished, nothing new begins"}
        assert facts_in(folder, RunPaused)[0].reason == "lunch"
        assert await order(client, "r1", order="pause") == {"done": False, "said": "run r1 is paused already"}
        node = next(iter(read_run(folder).state.frontier_ids))
        assert (await order(client, "r1", order="tell", text="no threads", to="coder"))["said"] == (
            "instruction 1, to the coders: no threads"
        )
        assert (await order(client, "r1", order="pin", node_id=node))["done"]
        assert (await order(client, "r1", order="boost", node_id=node, by=0.5))[
            "said"
        ] == f"+0.50 on the score of {node}"
        assert (await order(client, "r1", order="forbid", node_id=node, reason="no"))["done"]
        assert (await order(client, "r1", order="release", node_id=node))["done"]
        unknown = await order(client, "r1", order="pin", node_id="n99999")
        assert (unknown["done"], "does not exist" in unknown["said"]) == (False, True)
        assert (await order(client, "r1", order="continue"))["done"]
        assert (await order(client, "r1", order="stop"))["done"]
    kinds = (NodePinned, NodeBoosted, NodeForbidden, NodeReleased)
    assert [len(facts_in(folder, kind)) for kind in kinds] == [1, 1, 1, 1]
    assert facts_in(folder, NodeBoosted)[0].by == 0.5


async def test_a_run_that_rests_keeps_the_order_until_it_goes_on(tmp_path: Path) -> None:
    folder = stopped_run(tmp_path)
    async with dashboard(tmp_path) as client:
        told = await order(client, RUN_ID, order="tell", text="Keep to one launch.")
        stopped = await order(client, RUN_ID, order="stop")
        continued = await order(client, RUN_ID, order="continue")
    assert not told["done"]
    assert "this is recorded, and takes effect when it goes on; hint: ksearch resume" in told["said"]
    assert list(read_journal(folder.journal))[-1].body == SteeringRequested(order=Instruct(text="Keep to one launch."))
    assert (stopped["done"], "is over already" in stopped["said"]) == (False, True)
    assert (continued["done"], "it cannot continue" in continued["said"]) == (False, True)
    assert read_run(folder).standing == "finished"


async def test_orders_to_a_run_that_is_not_there_lead_to_no_other(tmp_path: Path) -> None:
    folder = stopped_run(tmp_path / "runs")
    stopped_run(tmp_path)
    before = folder.journal.read_bytes()
    async with dashboard(tmp_path / "runs") as client:
        for name in ("latest", "nobody", f"..%2f{RUN_ID}", "%2e%2e"):
            answer = await client.post(f"/api/runs/{name}/orders", json={"order": "tell", "text": "x"}, headers=BEARER)
            assert answer.status_code == 404, name
    assert folder.journal.read_bytes() == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"stop"',
        b"{",
        b"\xff\xfe",
        b'{"order": "dance"}',
        b'{"order": "pin"}',
        b'{"order": "tell", "text": "  "}',
        b'{"order": "tell", "text": 7}',
        b'{"order": "tell", "text": "\\ud800"}',
        b'{"order": "boost", "node_id": "n1", "by": "much"}',
        b'{"order": "boost", "node_id": "n1", "by": 1e999}',
        b'{"order": "pin", "node_id": {"$ne": ""}}',
        b'{"order": "stop", "run": "other"}',
        b'{"order": "tell", "to": "everybody", "text": "x"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
async def test_what_is_no_order_is_bad_input_and_changes_nothing(tmp_path: Path, body: bytes) -> None:
    folder = stopped_run(tmp_path)
    before = folder.journal.read_bytes()
    headers = {**BEARER, "Content-Type": "application/json"}
    async with dashboard(tmp_path) as client:
        answer = await client.post(f"/api/runs/{RUN_ID}/orders", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert folder.journal.read_bytes() == before


async def test_an_order_is_json_and_not_endless(tmp_path: Path) -> None:
    stopped_run(tmp_path)
    path = f"/api/runs/{RUN_ID}/orders"
    async with dashboard(tmp_path) as client:
        form = await client.post(path, data={"order": "stop"}, headers=BEARER)
        endless = await client.post(
            path, content=b" " * (MAX_BODY_BYTES + 1), headers={**BEARER, "Content-Type": "application/json"}
        )
        look = await client.get(path, headers=BEARER)
    assert (form.status_code, endless.status_code, look.status_code) == (415, 413, 405)
