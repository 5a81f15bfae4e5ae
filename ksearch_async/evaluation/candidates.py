"""Candidates from files: a source file, a folder that the recorder made, or a run's journal."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeAlias

import msgspec

from actors.bus.journal import read_journal
from actors.recorder.folder import Evidence, Manifest
from evaluators.languages import SPECS
from ksearch_async.errors import refusal
from messages.base import BusError, Language
from messages.events import CandidateWritten
from messages.tasks import Candidate, SourceFile, TaskSpec

SourceLike: TypeAlias = str | os.PathLike[str] | Candidate

TRITON_ENTRY_POINT = "ksearch_run"
_TRITON = re.compile(rf"^def {TRITON_ENTRY_POINT}\b", re.MULTILINE)
_MODULE = re.compile(r"^class ModelNew\b", re.MULTILINE)


def read_kernel(source: SourceLike, language: Language | None, task: TaskSpec | None = None) -> Candidate:
    """Return a candidate from a file, a folder or a text.

    Args:
        source: path of a source file or of a run's `best` folder, or a kernel's text (more than one line); for a task
            of FlashInfer-Bench also a solution's JSON file.
        language: its language; null: derived from file or text, see `language_of`.
        task: its task; None: a task with modules as Python candidates.

    Raises:
        ConfigError: it cannot be read, is not a candidate, or its language is unknown.
    """
    if isinstance(source, Candidate):
        return source
    if language is not None and language not in SPECS:
        raise refusal(f"there is no language {language!r}", f"there are: {', '.join(SPECS)}")
    if _is_text(source):
        if language is None:
            raise refusal("a kernel that is given as text does not say its language", 'name it: language="cpp"')
        return _kernel(f"kernel{SPECS[language].suffixes[0]}", str(source), language, task)
    path = Path(source)
    if path.is_dir():
        return _kept(path)
    text = _text(path)
    if path.suffix == ".json":
        from evaluators.tasks import candidate_of_json  # noqa: PLC0415 - of one kind of tasks

        return candidate_of_json(text, str(path), task)
    language = language or language_of(path.name, text, task)
    suffixes = SPECS[language].suffixes
    if SPECS[language].is_native and not path.name.endswith(suffixes):
        raise refusal(
            f"source {str(path)!r} is taken for {language}; its files must end in {', '.join(suffixes)}",
            "rename it; .cu is CUDA, .py Triton or Python",
        )
    return _kernel(path.name, text, language, task)


def read_program(source: SourceLike) -> Candidate:
    """Return the candidate of a task that is a plain Python program, from a path or a text as in `read_kernel`.

    Raises:
        ConfigError: it cannot be read, or is not a candidate.
    """
    if isinstance(source, Candidate):
        return source
    if _is_text(source):
        return _program("program.py", str(source))
    path = Path(source)
    return _kept(path) if path.is_dir() else _program(path.name, _text(path))


def read_given(source: Path, language: Language, *, is_program: bool) -> Candidate:
    """Return the candidate that a run is started with, in the run's language.

    Args:
        source: a source file, a run's `best` folder, or a folder of its `candidates`.
        language: the run's language.
        is_program: the task is a plain Python program, not a kernel.

    Raises:
        ConfigError: it cannot be read, is not a candidate, or is in another language.
    """
    if is_program:
        return read_program(source)
    is_told = source.is_dir() or source.suffix in (".cu", ".py")  # any other suffix may be C++
    candidate = read_kernel(source, None if is_told else language)
    if candidate.language != language:
        raise refusal(
            f"{str(source)!r} is written in {candidate.language}, and the run's language is {language}",
            "a run has one language",
        )
    return candidate


def language_of(name: str, text: str, task: TaskSpec | None = None) -> Language:
    """Return the language of a source file.

    `.cu` is CUDA; `.py` is Triton, or a module if it defines the class `ModelNew`; everything else is C++. For a task
    with functions as Python candidates, `.py` is Python unless it defines Triton's `ksearch_run`.
    """
    suffix = Path(name).suffix
    if suffix == ".py" and task is not None and task.calling != "module":
        return "triton" if _TRITON.search(text) and task.entry_point != TRITON_ENTRY_POINT else "python"
    if suffix == ".py":
        return "python" if _MODULE.search(text) else "triton"
    return next((name for name, spec in SPECS.items() if suffix in spec.suffixes), "cpp")


def written_candidate(journal: Path, candidate_id: str) -> Candidate:
    """Return a candidate of a run, from the event with its answer.

    Raises:
        messages.base.BusError: the journal cannot be read, or has no such candidate.
    """
    for record in read_journal(journal):
        body = record.body
        if isinstance(body, CandidateWritten) and body.candidate and body.candidate.candidate_id == candidate_id:
            return body.candidate
    raise BusError(f"journal {journal} holds no candidate {candidate_id!r}")


def _is_text(source: str | os.PathLike[str]) -> bool:
    """Return True for a text, which has more than one line, and False for a path."""
    return isinstance(source, str) and "\n" in source


def _kernel(name: str, text: str, language: Language, task: TaskSpec | None = None) -> Candidate:
    if language == "python" and task is not None and task.calling != "module":
        from evaluators.tasks import candidate_of_text  # noqa: PLC0415 - of one kind of tasks

        return candidate_of_text(text, task, name)
    entry_point = next(iter(SPECS[language].supports.values())).entry_point
    return Candidate(language=language, entry_point=entry_point, files=(SourceFile(path=name, text=text),))


def _program(name: str, text: str) -> Candidate:
    return Candidate(language="python", entry_point="", files=(SourceFile(path=name, text=text),))


def _kept(folder: Path) -> Candidate:
    manifest = _manifest(folder)
    files = tuple(SourceFile(path=name, text=_text(folder / name)) for name in manifest.files)
    if not files:
        raise refusal(f"{str(folder)!r} holds no source file")
    return msgspec.convert({**msgspec.to_builtins(manifest), "files": files}, Candidate)


def _manifest(folder: Path) -> Manifest:
    try:
        if (folder / "evidence.json").exists():
            evidence = msgspec.json.decode((folder / "evidence.json").read_bytes(), type=Evidence)
            if evidence.candidate is not None:
                return evidence.candidate
        return msgspec.json.decode((folder / "candidate.json").read_bytes(), type=Manifest)
    except OSError as error:
        why = error.strerror
        if isinstance(error, FileNotFoundError):
            why = "neither evidence.json nor candidate.json is in it"
        raise refusal(
            f"cannot read a candidate from folder {str(folder)!r}: {why}",
            f"this is a run: give its best/ folder, {str(folder / 'best')!r}, or a folder of its candidates/"
            if (folder / "journal.jsonl").is_file()
            else "give a source file, a run's best/ folder, or a folder of its candidates/",
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
