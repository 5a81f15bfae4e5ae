"""What is said of orders to runs that nobody works on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.orders import LocalLine, Verb, steer
from ksearch_async.settings.run_config import RunConfig, save_config
from messages.base import ConfigError
from messages.codec import encode_line
from messages.events import PauseRequested, StopRequested
from messages.facts import RunStopping
from tests.ksearch_async.stories import RUN_ID, decided, story

pytestmark = pytest.mark.anyio


@pytest.fixture
def killed(tmp_path: Path) -> RunFolder:
    """A run whose process was killed after it was asked to stop."""
    folder = RunFolder(tmp_path / RUN_ID)
    folder.path.mkdir()
    save_config(RunConfig(task="relu"), folder.config)
    records = story(None)
    stopping = decided(RunStopping(stopped_by="interrupted", detail="enough"))
    last = msgspec.structs.replace(records[-1], seq=records[-1].seq + 1, msg_id="stopping", body=stopping)
    folder.journal.write_bytes(b"".join(map(encode_line, (*records, last))))
    return folder


@pytest.mark.parametrize(
    ("verb", "said"), [("stop", f"run '{RUN_ID}' is not running: its process was killed"), ("pause", "it cannot pause")]
)
async def test_a_run_that_was_killed_while_it_stopped_is_not_said_to_be_stopping(
    verb: Verb, said: str, killed: RunFolder
) -> None:
    order = StopRequested(reason="enough") if verb == "stop" else PauseRequested(reason="")
    with pytest.raises(ConfigError, match=said) as caught:
        await steer(LocalLine(killed), verb, order)
    assert caught.value.__notes__ == [f"ksearch resume {RUN_ID} goes on with it"]
