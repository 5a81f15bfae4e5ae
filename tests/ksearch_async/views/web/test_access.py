"""Who may ask the dashboard for what, and what its answers let a browser do."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.ksearch_async.stories import RUN_ID, on_disk, story
from tests.ksearch_async.views.web.dashboards import BEARER, TOKEN, dashboard

pytestmark = pytest.mark.anyio
ORDERS = f"/api/runs/{RUN_ID}/orders"
NO_ORDER = {"order": "dance"}
"""Answered with 400 by what stands behind the guard."""


async def asked(client: httpx.AsyncClient, headers: dict[str, str]) -> int:
    return (await client.post(ORDERS, json=NO_ORDER, headers=headers)).status_code


async def test_orders_need_the_token_and_looking_does_not(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    async with dashboard(tmp_path) as client:
        assert (await client.get("/api/runs")).status_code == 200
        for headers in (
            {},
            {"Authorization": "Bearer"},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": TOKEN},
        ):
            assert await asked(client, headers) == 401
        assert await asked(client, BEARER) == 400
        assert await asked(client, {"Authorization": f"bearer  {TOKEN}"}) == 400
        assert (await client.post(f"{ORDERS}?token={TOKEN}", json=NO_ORDER)).status_code == 401
        assert (await client.get("/api/server")).json()["can_steer"] is False
        assert (await client.get("/api/server", headers=BEARER)).json()["can_steer"] is True


async def test_where_people_set_a_token_nothing_of_a_run_is_told_without_it(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    async with dashboard(tmp_path, reads_need_token=True) as client:
        for path in ("runs", "events", f"runs/{RUN_ID}/history", f"runs/{RUN_ID}/updates", "nodes", "server", "none"):
            refused = await client.get(f"/api/{path}")
            assert refused.status_code == 401
            assert RUN_ID not in refused.text
        assert (await client.get("/api/runs", headers=BEARER)).status_code == 200
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8787", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("192.168.1.7:8787", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8787", 421),
        ("127.0.0.1.evil.example", 421),
        ("user@evil.example", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
async def test_names_that_may_be_made_to_point_here_are_not_ours(tmp_path: Path, host: str, status: int) -> None:
    async with dashboard(tmp_path) as client:
        for path in ("/", "/api/runs", "/static/app.js"):
            assert (await client.get(path, headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"Origin": "http://{host}"}, 400),
        ({"Origin": "http://{host}", "Sec-Fetch-Site": "same-origin"}, 400),
        ({"Sec-Fetch-Site": "none"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://{host}", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_orders_come_from_our_own_page_or_from_no_page(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    on_disk(tmp_path, story())
    async with dashboard(tmp_path) as client:
        host = f"{client.base_url.host}:{client.base_url.port}"
        told = {name: value.format(host=host) for name, value in headers.items()}
        assert await asked(client, {**BEARER, **told}) == status


async def test_no_answer_lets_a_browser_run_load_or_frame_what_is_not_ours(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    async with dashboard(tmp_path) as client:
        answers = [
            await client.get(path) for path in ("/", "/static/app.js", "/api/runs", "/nothing", "/api/runs/x/task")
        ]
        answers.append(await client.get("/", headers={"Host": "evil.example"}))
        answers.append(await client.post(ORDERS))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
    assert answers[2].headers["cache-control"] == "no-store"
