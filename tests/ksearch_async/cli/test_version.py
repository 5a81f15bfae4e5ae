"""`--version` names what a report of a fault needs."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version

import pytest

from ksearch_async.cli import main


def test_versions_of_ours_python_and_the_packages_that_matter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ksearch-async"] == version("ksearch-async")
    assert told["python"] == platform.python_version()
    assert {"torch", "triton", "openai", "msgspec", "nats-py", "platform"} <= set(told)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["ksearch-async", version("ksearch-async")]
