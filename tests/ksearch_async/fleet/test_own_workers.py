"""Which workers the process of a run brings along, and for what they are of use."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.simulated import SIMULATED
from ksearch_async.fleet.nats_runs import WORKERS, check_can_serve, check_rights, roles_here
from ksearch_async.fleet.nodes import check_may_be
from ksearch_async.settings.models import model_name
from ksearch_async.settings.run_config import ModelSettings, ProgramSettings, RunConfig, WorkerSettings
from messages.base import ConfigError, Role
from messages.tasks import Target
from tests.ksearch_async.nats_servers import Team, serve_team
from tests.ksearch_async.stories import TARGET

URL = "nats://127.0.0.1:4222"


@pytest.mark.parametrize(
    ("nats", "said", "roles"),
    [
        ("embedded", None, WORKERS),
        (URL, None, ()),
        (URL, "all", WORKERS),
        ("embedded", "none", ()),
        (URL, "builder, evaluator", ("builder", "evaluator")),
    ],
)
def test_all_workers_are_here_unless_the_server_is_everybodys(
    nats: str, said: str | None, roles: tuple[Role, ...]
) -> None:
    assert roles_here(RunConfig(task="t", nats=nats, workers=WorkerSettings(here=said))) == frozenset(roles)


def test_what_is_no_worker_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'judge' is no worker"):
        roles_here(RunConfig(task="t", nats=URL, workers=WorkerSettings(here="coder,judge")))


def test_programs_are_scored_here() -> None:
    program = ProgramSettings(evaluator="evaluate.py")
    with pytest.raises(ConfigError, match="programs are scored by the process"):
        roles_here(RunConfig(task="t", nats=URL, program=program))
    assert roles_here(RunConfig(task="t", nats="embedded", program=program)) == frozenset(WORKERS)


def test_workers_of_this_machine_must_be_of_use_to_the_run() -> None:
    both = frozenset[Role](("builder", "evaluator"))
    newer = Target(arch="x86_64", march="x86-64-v4", toolchain="g++ 12", device="AMD EPYC")
    check_can_serve(both, "cpp", TARGET, TARGET)
    check_can_serve(frozenset(), "cpp", None, TARGET)
    check_can_serve(frozenset(("builder",)), "cpp", newer, TARGET)  # -march is said, not guessed
    with pytest.raises(ConfigError, match="the run is for"):
        check_can_serve(frozenset(("evaluator",)), "cpp", newer, TARGET)
    with pytest.raises(ConfigError, match="the run is for simulated"):
        check_can_serve(frozenset(("builder",)), "cpp", TARGET, SIMULATED)


@pytest.mark.anyio
@pytest.mark.nats
async def test_who_may_only_lead_brings_no_workers_along(team: Team, tmp_path: Path) -> None:
    async with serve_team(tmp_path / "store", team) as server:
        async with server.bus("planner") as bus:
            await check_rights(bus, frozenset())
            with pytest.raises(ConfigError, match="may not be a coder") as refused:
                await check_rights(bus, frozenset(WORKERS) - {"builder"})
        assert "ksearch coder" in refused.value.__notes__[0]
        async with server.bus("admin") as bus:
            await check_rights(bus, frozenset(WORKERS))
        async with server.bus("coder") as bus:
            await check_may_be(bus, "coder")
            with pytest.raises(ConfigError, match="may not be an evaluator") as refused:
                await check_may_be(bus, "evaluator")
        assert "credentials/evaluator" in refused.value.__notes__[0]


def test_everybody_sees_a_models_name_and_nobody_its_address() -> None:
    endpoint = ModelSettings(name="m-1", base_url="http://inside.example/v1")
    assert model_name(endpoint, {}) == "m-1"
    assert model_name(ModelSettings(), {}) == "built-in rules"
