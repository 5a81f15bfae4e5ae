"""How a command finds a run, wherever it is: in a folder of this host, or on a server."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from ksearch_async.runs.folder import runs_dir_or_default
from ksearch_async.runs.orders import Line, open_line


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where a run is looked for."""

    nats: str | None = None
    """Address of the NATS server. Without it: as the run's folder says, else KSEARCH_NATS."""
    credentials: Path | None = None
    """File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]"""
    runs_dir: Path | None = None
    """Folder of the run folders. [env: KSEARCH_RUNS_DIR] [default: runs]"""

    def line(self, run: str) -> AbstractAsyncContextManager[Line]:
        """Return the way to a run, by its id, its folder, or `latest`; open while it is entered.

        Raises (when entered):
            ConfigError: there is no such run, or no server is named.
            messages.base.BusError: the server cannot be reached.
        """
        folder = runs_dir_or_default(self.runs_dir)
        return open_line(run, self.nats, folder, os.environ, credentials=self.credentials)


ANYWHERE = Reach()
