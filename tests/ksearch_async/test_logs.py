"""Where log lines go, and what happens when they cannot."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from ksearch_async.logs import configure_logs
from messages.errors import ConfigError


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


def test_a_log_that_cannot_be_opened_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*none/ksearch.log'"):
        configure_logs(tmp_path / "none" / "ksearch.log")


def test_a_full_disk_costs_log_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Path("/dev/full"))
    structlog.get_logger("search").warning("actor crashed", actor="recorder")
    assert capsys.readouterr().err.splitlines() == ["warning: actor crashed (actor='recorder')"]
