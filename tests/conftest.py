"""Fixtures that every test may use: the event loop, the guard against blocking it, and the one against leftovers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TypeAlias

import psutil  # type: ignore[import-untyped]
import pytest
from blockbuster import blockbuster_ctx

from tests.virtual_time import VirtualTimeLoop

Backend: TypeAlias = tuple[str, dict[str, object]]

REAL_TIME: Backend = ("asyncio", {})
VIRTUAL_TIME: Backend = ("asyncio", {"loop_factory": VirtualTimeLoop})

_RECORDING = (
    "lacks",
    "source",
    "keep_candidate",
    "keep_attempt",
    "keep_log",
    "keep_verdict",
    "keep_best",
    "keep_snapshot",
)


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """asyncio with the real clock; with `@pytest.mark.virtual_time` (or a module's `pytestmark`) on the virtual one."""
    return REAL_TIME if request.node.get_closest_marker("virtual_time") is None else VIRTUAL_TIME


@pytest.fixture(scope="session", autouse=True)
def event_loop_is_never_blocked() -> Iterator[None]:
    """Fail a test whose coroutines block the loop in our code; what is done without a loop is not looked at."""
    with blockbuster_ctx(["actors", "messages"]) as guard:
        for function in guard.functions.values():
            # The journal writes to the page cache and reads back from it: microseconds, see actors/bus/journal.py.
            function.can_block_in("actors/bus/journal.py", ("write_all", "_read_span", "load", "close"))
            # So does the recorder, for the same reason: see actors/recorder/actor.py.
            function.can_block_in("actors/recorder/folder.py", _RECORDING)
            function.can_block_in("actors/recorder/projection.py", ("take", "close"))
            # A model is opened once in a run; the SDK then looks for the system's certificates.
            function.can_block_in("actors/llm/endpoint.py", ("__init__",))
            # A crash that is logged is shown with its source lines.
            function.can_block_in("structlog/_base.py", ("_process_event",))
        yield


@pytest.fixture(scope="session", autouse=True)
def users_cache_is_left_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have judges keep what they find out about tasks in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Fail the session if a child process of ours outlives the tests."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    children = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    _, alive = psutil.wait_procs(children, timeout=2)
    left = [f"{child.pid}: {child.name()}" for child in alive]
    assert not left, f"processes left behind by tests: {left}"


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers that this file gives a meaning, and have assertions of contracts explained."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background; what tests start would inherit that, and not end when it is told to.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    pytest.register_assert_rewrite("tests.contracts", "tests.evaluators.hardware.vendors.contract")
    config.addinivalue_line("markers", "virtual_time: runs on an event loop whose clock jumps to the next timer")
