"""`ksearch doctor --model` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio.from_thread
import pytest

from actors.llm.chat import ChatModel
from ksearch_async.cli import main
from tests.actors.llm.served.serving import serving
from tests.ksearch_async.cli.test_dry_run import PLUS_ONE

NAME = "offline-rules"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ksearch" / "endpoints"


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


@contextmanager
def served() -> Iterator[str]:
    """Serve the built-in rules from another thread; yields the address."""
    with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(serving()) as (_, url):
        yield url


def test_what_was_found_is_printed_and_remembered(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served() as url:
        assert main(["doctor", "--model", NAME, "--base-url", url]) == 0
        told = capsys.readouterr()
        (kept,) = own_cache.iterdir()
        (own_cache.parent / "plus_one.py").write_text(PLUS_ONE)
        assert "dialect responses" in told.out
        assert "asked    7 questions" in told.out
        assert told.out.rstrip().endswith(str(kept))
        assert "some small questions" in told.err
        dry = [
            "run",
            str(own_cache.parent / "plus_one.py"),
            "--model",
            NAME,
            "--base-url",
            url,
            "--dry-run",
            "--runs-dir",
            str(own_cache),
        ]
        assert main(dry) == 0
    assert "(probed on " in capsys.readouterr().out


def test_scripts_get_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as url:
        assert main(["doctor", "--model", NAME, "--base-url", url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["works"] is True
    assert told["probe"]["capabilities"]["dialects"] == ["chat", "responses"]
    assert told["probe"]["questions"] == 7


def test_a_model_that_is_not_there_ends_with_3_and_nothing_is_remembered(
    own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as url:
        assert main(["doctor", "--model", "gpt", "--base-url", url]) == 3
    told = capsys.readouterr().out
    assert "no       model listed       there are 'offline-rules'" in told
    assert not own_cache.exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("there", "no address of an endpoint"),
        ("http://two words/v1", "no address of an endpoint"),
        ("http://:8000/v1", "no address of an endpoint"),
        ("http://127.0.0.1:185010/v1", "cannot be read: Port out of range"),
    ],
)
def test_an_address_that_is_none_is_bad_input(address: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "m", "--base-url", address]) == 2
    assert said in capsys.readouterr().err
