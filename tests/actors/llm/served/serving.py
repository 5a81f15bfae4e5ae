"""The served model on a free port, in this process: real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from actors.llm.offline import OfflineModel
from actors.llm.offline.mistakes import Mistakes
from actors.llm.served.app import Conduct, Served
from actors.llm.served.server import listening_socket, serve_app

PLAIN = Conduct()


@asynccontextmanager
async def serving(
    conduct: Conduct = PLAIN, *, seed: int = 0, latency_s: float = 0.0, mistakes: Mistakes | float = 0.0
) -> AsyncIterator[tuple[Served, str]]:
    """Serve; yields the endpoint and its address."""
    served = Served(OfflineModel(seed=seed, latency_s=latency_s, mistakes=mistakes), conduct)
    listener = listening_socket(0)
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve_app, served.app, listener)
        try:
            yield served, base_url
        finally:
            tasks.cancel_scope.cancel()
