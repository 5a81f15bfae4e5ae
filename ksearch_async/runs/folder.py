"""Run folders: their layout and names, and how to find one.

Layout: `config.json` (resolved), `journal.jsonl` (the source of truth), and what is derived from it: `candidates/`,
`attempts/`, `best/`, `artifacts/`; `ksearch.log` for finding faults.
"""

from __future__ import annotations

import fcntl
import re
import secrets
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec

from actors.bus.journal import read_journal
from ksearch_async.errors import refusal, suggestion
from ksearch_async.runs.run import Run
from messages.subjects import checked_id

_SUFFIX_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_NAME_LENGTH = 32


class _Entry:
    """A path inside a run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, _owner: type) -> Path:
        return folder.path / self._name


class RunFolder(msgspec.Struct, frozen=True):
    """One run on disk."""

    path: Path

    config = _Entry("config.json")
    """The resolved configuration."""
    journal = _Entry("journal.jsonl")
    """All events of the run, one JSON record per line."""
    candidates = _Entry("candidates")
    """Every candidate that was written, by content hash."""
    best = _Entry("best")
    """The incumbent's files."""
    artifacts = _Entry("artifacts")
    """Builds by content hash; can be deleted when the run is over."""
    nats = _Entry("nats")
    """The store of a nats-server of the run's own."""
    address = _Entry("nats.address")
    """The address of that server, while it listens."""
    orders = _Entry("orders")
    """Orders of people to the run's process, while there is one."""
    log = _Entry("ksearch.log")
    """Log lines as JSON."""

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    def in_use(self) -> bool:
        """Say whether a process is working on the run: it holds the journal's lock."""
        with self.journal.open("rb") as journal:
            try:
                fcntl.flock(journal, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def run_id_of(name: str) -> str:
    """Return the run id for a name that a person chose: lower case, with dashes for all but letters and digits.

    Raises:
        ConfigError: nothing is left of it, or it is too long.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    try:
        return checked_id(slug)
    except ValueError as error:
        raise refusal(f"{name!r} is no name for a run", "use letters, digits and dashes, 64 at most") from error


def new_run_id(task_name: str, started_at: datetime) -> str:
    """Return a name for a run: task, start (UTC) and four random characters, e.g. `relu-20261120-142301-k3f9`."""
    slug = re.sub(r"[^a-z0-9]+", "-", Path(task_name).stem.lower()).strip("-")[:_NAME_LENGTH].strip("-") or "task"
    suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(4))
    return checked_id(f"{slug}-{started_at:%Y%m%d-%H%M%S}-{suffix}")


def create_run(runs_dir: Path, run_id: str) -> RunFolder:
    """Create a new run's folder.

    Raises:
        ConfigError: it cannot be written there, or exists.
    """
    folder = RunFolder(runs_dir.absolute() / run_id)
    try:
        check_free(folder)
        folder.path.mkdir(parents=True)
        check_writable(folder.path)
    except OSError as error:
        raise refusal(
            f"cannot write to {str(runs_dir)!r}: {error.strerror}", "choose another folder with --runs-dir"
        ) from error
    return folder


def check_free(folder: RunFolder) -> None:
    """Check that a folder does not exist yet.

    Raises:
        ConfigError: it exists.
    """
    if folder.path.exists():
        hint = f"ksearch resume {folder.run_id} goes on with it; a new run needs another name"
        raise refusal(f"there is a run {folder.run_id!r} in {str(folder.path.parent)!r} already", hint)


def check_writable(folder: Path) -> None:
    """Check that a folder can be written, by writing and removing a file."""
    with tempfile.TemporaryFile(dir=folder):  # of no name: processes that start at once do not meet
        pass


def list_runs(runs_dir: Path) -> list[RunFolder]:
    """Return the runs of a folder, the most recently written first."""
    if not runs_dir.is_dir():
        return []
    found = [RunFolder(path) for path in runs_dir.absolute().iterdir() if (path / "journal.jsonl").is_file()]
    return sorted(found, key=lambda run: (run.journal.stat().st_mtime_ns, run.run_id), reverse=True)


def find_run(name: str, runs_dir: Path) -> RunFolder:
    """Return the run named by an id, a path, or `latest`.

    Raises:
        ConfigError: there is none.
    """
    runs = list_runs(runs_dir)
    if name == "latest":
        if not runs:
            raise refusal(f"no runs in {str(runs_dir)!r}", "start one: ksearch run rmsnorm_silu")
        return runs[0]
    for path in (runs_dir / name, Path(name)):
        if (path / "journal.jsonl").is_file():
            return RunFolder(path.resolve())
        if (path / "config.json").is_file():
            raise not_begun(path.name)
    hint = suggestion(name, (run.run_id for run in runs), f"ksearch looks in {str(runs_dir)!r}; --runs-dir says where")
    raise refusal(f"no run {name!r}", hint)


def not_begun(run_id: str) -> Exception:
    """Return the error for a run that has a folder and no event."""
    hint = "its process is still checking the reference; if there is none any more, its folder can be removed"
    return refusal(f"run {run_id!r} has not begun yet", hint)


def read_run(folder: RunFolder, *, with_texts: bool = False) -> Run:
    """Read a run's journal, which another process may be writing."""
    return Run.of(read_journal(folder.journal), with_texts=with_texts)
