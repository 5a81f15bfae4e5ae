"""What goes along with a search and never holds it up: experiment trackers and notices. Both read its journal."""

from __future__ import annotations

import os
from collections.abc import Callable

from ksearch_async.follow.notices import noticed
from ksearch_async.follow.tracking.beside import tracked
from ksearch_async.runs.session import Lead, Session, StopSwitch
from messages.codec import Record


def accompanied(session: Session, lead: Lead, *, say: Callable[[str], None]) -> Lead:
    """Return a `Lead` that has the run tracked, and notices sent, as its configuration says.

    A session that only watches a run leaves that to the one that leads it.

    Args:
        session: about to be led.
        lead: leads it.
        say: called with lines for people.
    """

    async def led(*, tell: Callable[[Record], None], stop: StopSwitch | None = None) -> None:
        after = session.chronicle.last_seq
        async with (
            tracked(session.folder, session.config, os.environ, say),
            noticed(session.folder, session.config.notify, os.environ, after=after),
        ):
            await lead(tell=tell, stop=stop)

    return led if session.leads else lead
