"""Where log lines go, and what happens when they cannot."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import structlog

from ksearch_async.follow import logs
from ksearch_async.follow.logs import configure_logs, console_of, keep_secret
from ksearch_async.settings.models import api_key
from messages.base import ConfigError


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logs._known.clear()


def test_a_log_that_cannot_be_opened_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*none/ksearch.log'"):
        configure_logs(tmp_path / "none" / "ksearch.log")


def test_a_full_disk_costs_log_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Path("/dev/full"))
    structlog.get_logger("search").warning("actor crashed", actor="recorder")
    assert capsys.readouterr().err.splitlines() == ["warning: actor crashed (actor='recorder')"]


def test_a_nodes_lines_are_json_with_the_ids_of_what_they_are_about(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(console="json")
    structlog.contextvars.bind_contextvars(worker="builder-h-1-abcd")
    with structlog.contextvars.bound_contextvars(run="r1", job="r1-b3"):
        structlog.get_logger("actors.worker.work").info("job taken", attempt=2)
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert said.pop("timestamp").endswith("Z")
    assert said == {
        "event": "job taken",
        "level": "info",
        "logger": "actors.worker.work",
        "worker": "builder-h-1-abcd",
        "run": "r1",
        "job": "r1-b3",
        "attempt": 2,
    }


def test_an_exception_is_one_line_of_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(console="json")
    try:
        raise ValueError("no such thing")  # noqa: TRY301
    except ValueError as error:
        structlog.get_logger("actors.supervision").warning("actor crashed", exc_info=error)
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: no such thing" in json.loads(line)["exception"]


def test_a_nodes_lines_are_text_unless_it_is_asked_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(console=console_of({}, as_json=False))
    structlog.get_logger("actors.worker.work").info("job taken", job="r1-b3")
    assert capsys.readouterr().err.rstrip().endswith("Z info: job taken (job='r1-b3')")


def test_of_libraries_a_node_shows_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(console="text")
    logging.getLogger("httpx").info("HTTP Request: POST")
    logging.getLogger("httpx").warning("something")
    assert [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()] == ["warning: something"]


def test_the_form_of_lines_may_be_said_in_the_environment() -> None:
    assert console_of({"KSEARCH_LOG_FORMAT": "json"}, as_json=False) == "json"
    assert console_of({"KSEARCH_LOG_FORMAT": ""}, as_json=True) == "json"
    with pytest.raises(ConfigError, match="KSEARCH_LOG_FORMAT='xml'"):
        console_of({"KSEARCH_LOG_FORMAT": "xml"}, as_json=False)


PASSWORD = 'pa"ss\\wörd-1'  # noqa: S105 - nobody's


@pytest.mark.parametrize("console", ["json", "text"])
def test_no_line_shows_a_secret_wherever_it_stands(
    console: Literal["json", "text"], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    configure_logs(tmp_path / "log", console=console)
    keep_secret(PASSWORD, api_key({"OPENAI_API_KEY": "sk-very-secret"}), None, "")
    seed = f"SU{'A2' * 28}"
    log = structlog.get_logger("actors.worker.work")
    log.warning(f"refused: {PASSWORD}", password=PASSWORD, nested={"key": ["sk-very-secret"]}, bytes=PASSWORD.encode())
    logging.getLogger("nats").error("cannot connect as %s", seed)
    try:
        raise ValueError(f"bad key sk-very-secret and {PASSWORD!r}")  # noqa: TRY301
    except ValueError as error:
        log.error("failed", exc_info=error)  # noqa: TRY400
    shown = capsys.readouterr().err
    for lines in (shown, (tmp_path / "log").read_text()):
        assert lines.count("***") >= 6
        for text in (PASSWORD, "wörd-1", r"w\u00f6rd-1", r"w\xc3\xb6rd-1", "sk-very-secret", seed):
            assert text not in lines, text
    if console == "json":
        assert all(json.loads(line) for line in shown.splitlines())


def test_short_texts_are_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(console="text")
    keep_secret("a", "none")
    structlog.get_logger("actors.worker.work").info("a none of all")
    assert "a none of all" in capsys.readouterr().err
