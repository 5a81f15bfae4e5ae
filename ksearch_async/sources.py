"""Candidates from files: a source file, a folder that the recorder made, or a run's journal."""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.bus.journal import read_journal
from actors.recorder.folder import Evidence, Manifest
from evaluators.languages import support_of
from ksearch_async.refusals import refusal
from messages.base import Language
from messages.errors import BusError
from messages.events import CandidateWritten
from messages.tasks import Candidate, SourceFile


def read_source(path: Path, language: Language) -> Candidate:
    """Return the candidate of a source file, or of a run's `best` folder or a folder of its `candidates`.

    Raises:
        ConfigError: it cannot be read, or is no candidate.
    """
    if path.is_dir():
        manifest = _manifest(path)
        files = tuple(SourceFile(path=name, text=_text(path / name)) for name in manifest.files)
        if not files:
            raise refusal(f"{str(path)!r} holds no source file")
        return msgspec.convert({**msgspec.to_builtins(manifest), "files": files}, Candidate)
    text = _text(path)
    return Candidate(
        language=language,
        entry_point="" if language == "python" else support_of(language).entry_point,
        files=(SourceFile(path=path.name, text=text),),
    )


def written_candidate(journal: Path, candidate_id: str) -> Candidate:
    """Return a candidate of a run, from the event that brought it.

    Raises:
        messages.errors.BusError: the journal cannot be read, or holds no such candidate.
    """
    for record in read_journal(journal):
        body = record.body
        if isinstance(body, CandidateWritten) and body.candidate and body.candidate.candidate_id == candidate_id:
            return body.candidate
    raise BusError(f"journal {journal} holds no candidate {candidate_id!r}")


def _manifest(folder: Path) -> Manifest:
    try:
        if (folder / "evidence.json").exists():
            evidence = msgspec.json.decode((folder / "evidence.json").read_bytes(), type=Evidence)
            if evidence.candidate is not None:
                return evidence.candidate
        return msgspec.json.decode((folder / "candidate.json").read_bytes(), type=Manifest)
    except OSError as error:
        raise refusal(
            f"cannot read a candidate from folder {str(folder)!r}: {error.strerror}",
            "give a source file, a run's best/ folder, or a folder of its candidates/",
        ) from error
    except msgspec.MsgspecError as error:
        raise refusal(f"folder {str(folder)!r} is damaged: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise refusal(f"cannot read source {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise refusal(f"source {str(path)!r} is not UTF-8 text (byte {error.start})") from error
