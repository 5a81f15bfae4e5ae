"""Fixtures of the tests of what people use."""

from __future__ import annotations

import pytest

from ksearch_async.nats_team import make_team
from tests.ksearch_async.nats_servers import Team


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """Users with a password each; hashing those takes half a second."""
    folder = tmp_path_factory.mktemp("team") / "credentials"
    return Team(make_team(folder), folder)
