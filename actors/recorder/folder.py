"""The derived part of a run's folder; all of it can be rebuilt from the journal.

`candidates/<id>/`: a program, its first prompt and answer, its verdict. `attempts/<job>/`: each answer of a coder, with
prompt and answer unless they are stored with a candidate. `best/`, `world_model/`.

Files are written atomically (under another name, then renamed). A model chose the names of source files, so a name that
could leave the candidate's folder, or hide one of our files, is not used; the text stays in the journal.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from actors.planner.core.state import Node
from messages.base import BoundaryError, Message, Usage, copied
from messages.codec import to_json
from messages.events import CandidateWritten
from messages.tasks import Candidate
from messages.verdicts import Verdict

OURS = frozenset(
    {"candidate.json", "prompt.md", "answer.md", "build.log", "screen.json", "verdict.json", "evidence.json"}
)
"""Names of the recorder's own files."""
_NAME_BYTES = 200
_ID = re.compile(r"[0-9a-f]{32}")
_UNUSABLE = frozenset({errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""File system errors that mean an unusable name."""

S = TypeVar("S", bound=Message)

log = structlog.get_logger(__name__)


class Manifest(Message, frozen=True, kw_only=True):
    """`candidate.json`: the files and their author."""

    candidate_id: str
    language: str
    entry_point: str
    files: tuple[str, ...]
    """Source files in its folder, the main file first."""
    job_id: str
    branch_id: str
    model: str


class KeptAttempt(Message, frozen=True, kw_only=True):
    """`attempt.json`: a coder's answer as parsed."""

    job_id: str
    branch_id: str
    candidate_id: str | None = None
    """None if the answer contains no candidate."""
    complaint: str = ""
    declined: str = ""
    notes: tuple[str, ...] = ()
    """Harmless mistakes that were corrected."""
    model: str
    usage: Usage
    latency_s: float
    finish_reason: str
    texts: str
    """Folder, relative to the run's folder, that contains `prompt.md` and `answer.md`."""


class KeptVerdict(Message, frozen=True, kw_only=True):
    """`verdict.json`: the latest verdict on a candidate; if a confirmation's, `screen.json` has the screening's."""

    seq: int
    """Number of the verdict's event in the run's stream."""
    at: str
    job_id: str
    purpose: str
    """`build`, `screen` or `confirm`."""
    device: str
    wall_s: float
    lease_s: float = 0.0
    verdict: Verdict


class Evidence(Message, frozen=True, kw_only=True):
    """`evidence.json`: why the files in this folder are the best of the run, and how they were found."""

    seq: int
    """Number of the decision that made the candidate the incumbent."""
    at: str
    run_id: str
    candidate_id: str
    round: int
    node_id: str
    found_by: tuple[str, ...]
    """Titles of the actions from the root's child down to the node."""
    credit: float
    """Lower bound of the speedup's 95 % interval, or a score."""
    speedup_vs_reference: float | None = None
    latency_us: float | None = None
    screen_speedup: float | None = None
    """Speedup in the screening; None if the candidate was measured only once."""
    candidate: Manifest | None = None
    evaluation: KeptVerdict | None = None


class Snapshot(Message, frozen=True, kw_only=True):
    """`latest.json`: the world model after the planner's latest update, or at the end of a run."""

    seq: int
    """Number of the decision that precedes the snapshot."""
    at: str
    run_id: str
    rounds: int
    summary: str
    open_questions: tuple[str, ...]
    nodes: tuple[Node, ...]
    """Nodes in order of insertion, the root first."""


class RunFiles:
    """Writes the derived files of one run. Leaves existing files alone unless they are older."""

    def __init__(self, folder: Path) -> None:
        self._candidates = folder / "candidates"
        self._attempts = folder / "attempts"
        self._best = folder / "best"
        self._snapshot = folder / "world_model" / "latest.json"

    def lacks(self, written: CandidateWritten) -> bool:
        """Return True if an answer, or its candidate, has not been stored yet."""
        folders = [self._attempts / written.job_id / "attempt.json"]
        if written.candidate is not None:
            folders.append(self._candidates / written.candidate.candidate_id / "candidate.json")
        return not all(path.exists() for path in folders)

    def keep_candidate(self, written: CandidateWritten) -> None:
        """Store a candidate with its prompt and answer; for equal candidates, only the first."""
        candidate = written.candidate
        if candidate is None:
            return
        folder = self._candidates / candidate.candidate_id
        if (folder / "candidate.json").exists():
            return
        with _as_boundary_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            files = _write_sources(folder, candidate)
            _write(folder / "prompt.md", written.prompt.encode())
            _write(folder / "answer.md", written.answer.encode())
            # Written last: its presence means that the other files exist.
            mine = {"job_id": written.job_id, "branch_id": written.branch_id, "model": written.model}
            _write_json(
                folder / "candidate.json",
                copied(Manifest, candidate, candidate_id=candidate.candidate_id, files=files, **mine),
            )

    def source(self, candidate_id: str, path: str) -> str | None:
        """Return a file of a stored candidate, or None. The id comes from outside and is not trusted."""
        folder = self._candidates / candidate_id
        manifest = _read(folder / "candidate.json", Manifest) if _ID.fullmatch(candidate_id) else None
        if manifest is None or path not in manifest.files:
            return None
        with _as_boundary_errors(folder):
            return (folder / path).read_bytes().decode()

    def keep_attempt(self, written: CandidateWritten) -> None:
        """Store an answer as parsed; call it after `keep_candidate`.

        Any coder can publish events, so a job name that could lead outside the folder is not used.
        """
        if "/" in written.job_id or not is_usable_name(written.job_id):
            log.warning("attempt kept in the journal only: its job's name cannot be used", job=written.job_id)
            return
        folder = self._attempts / written.job_id
        if (folder / "attempt.json").exists():
            return
        candidate_id = written.candidate.candidate_id if written.candidate else None
        with _as_boundary_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            source = self._candidates / candidate_id if candidate_id else None
            manifest = _read(source / "candidate.json", Manifest) if source else None
            lies_there = manifest is not None and manifest.job_id == written.job_id
            if not lies_there:
                _write(folder / "prompt.md", written.prompt.encode())
                _write(folder / "answer.md", written.answer.encode())
            texts = f"candidates/{candidate_id}" if lies_there else f"attempts/{written.job_id}"
            kept = copied(KeptAttempt, written, candidate_id=candidate_id, texts=texts)
            _write_json(folder / "attempt.json", kept)

    def keep_log(self, candidate_id: str, text: str) -> None:
        """Store the compiler's log, unless it is empty."""
        path = self._candidates / candidate_id / "build.log"
        if text and not path.exists():
            with _as_boundary_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, text.encode())

    def keep_verdict(self, candidate_id: str, kept: KeptVerdict) -> None:
        """Store a verdict unless a later one is stored."""
        path = self._candidates / candidate_id / "verdict.json"
        with _as_boundary_errors(path):
            last = _read(path, KeptVerdict)
            if last is not None and last.seq >= kept.seq:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            if last is not None and kept.purpose == "confirm" and last.purpose == "screen":
                _write_json(path.with_name("screen.json"), last)
            _write_json(path, kept)

    def keep_best(self, evidence: Evidence) -> None:
        """Fill `best/` with this candidate, unless it contains a later one.

        The folder is replaced by two renames: for a moment a reader may find no folder, but never a partial one.
        """
        with _as_boundary_errors(self._best):
            last = _read(self._best / "evidence.json", Evidence)
            if last is not None and last.seq >= evidence.seq:
                return
            source = self._candidates / evidence.candidate_id
            fresh, old = self._best.with_name(".best.new"), self._best.with_name(".best.old")
            for left_over in (fresh, old):
                shutil.rmtree(left_over, ignore_errors=True)
            fresh.mkdir(parents=True)
            manifest = _read(source / "candidate.json", Manifest)
            for name in manifest.files if manifest else ():
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, fresh / name)
            evaluation = _read(source / "verdict.json", KeptVerdict)
            _write_json(
                fresh / "evidence.json",
                msgspec.structs.replace(evidence, candidate=manifest, evaluation=evaluation),
            )
            if self._best.exists():
                self._best.rename(old)
            fresh.rename(self._best)
            shutil.rmtree(old, ignore_errors=True)

    def keep_snapshot(self, snapshot: Snapshot) -> None:
        """Store the world model unless a later one is stored."""
        with _as_boundary_errors(self._snapshot):
            last = _read(self._snapshot, _Place)
            if last is None or last.seq < snapshot.seq:
                self._snapshot.parent.mkdir(parents=True, exist_ok=True)
                _write_json(self._snapshot, snapshot)


class _Place(Message, frozen=True, kw_only=True):
    seq: int


def is_usable_name(path: str) -> bool:
    """Return True if a source file may have this name inside its candidate's folder."""
    parts = path.split("/")
    return (
        all(part and not part.startswith(".") and len(part.encode()) <= _NAME_BYTES for part in parts)
        and not any(letter in path for letter in "\\:\0")
        and parts[0].casefold() not in OURS
    )


def _write_sources(folder: Path, candidate: Candidate) -> tuple[str, ...]:
    written: list[str] = []
    for file in candidate.files:
        if file.path not in written and is_usable_name(file.path) and _write_source(folder / file.path, file.text):
            written.append(file.path)
        else:
            log.warning(
                "source file kept in the journal only: its name cannot be used",
                candidate=candidate.candidate_id,
                name=file.path,
            )
    return tuple(written)


def _write_source(path: Path, text: str) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, text.encode())
    except OSError as error:
        if error.errno not in _UNUSABLE:
            raise
        return False
    return True


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _write_json(path: Path, value: Message) -> None:
    _write(path, msgspec.json.format(to_json(value), indent=2) + b"\n")


def _read(path: Path, kind: type[S]) -> S | None:
    """Read one of our files. Returns None if it is missing or not in our format, so that it is rewritten."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextmanager
def _as_boundary_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BoundaryError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
