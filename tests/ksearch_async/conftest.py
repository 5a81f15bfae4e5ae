"""Fixtures of the tests of what people use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ksearch_async.fleet.server_config import make_team
from tests.ksearch_async.nats_servers import Team


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """Users with a password each; hashing those takes half a second."""
    folder = tmp_path_factory.mktemp("team") / "credentials"
    return Team(make_team(folder), folder)


@pytest.fixture(scope="module", autouse=True)
def judges_have_one_thread() -> Iterator[None]:
    """Have judges and candidates compute with one thread: several spin while other tests have the cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
