"""The dialect `manual`: each prompt becomes a file, and a person or another program writes the answer beside it.

`prompts/007-coder.md` is answered by `prompts/007-coder.answer.md`. An answer counts once its file is not empty and has
not changed for a moment; it is best written under another name and then renamed. There is no time-out. A repeated
question waits for the same file; if it is answered, it has its answer at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import structlog

from actors.llm.base import Answer, Request, estimated_usage
from messages.base import ModelError

POLL_S: Final = 0.5
"""Seconds after which an unchanged answer is complete."""
_HEAD: Final = "<!-- ksearch question {request_id}: write the answer to {answer} -->"
_ANSWER: Final = ".answer.md"
_OURS: Final = re.compile(r"(?P<number>[0-9]{3,12})-[a-z]+\.md")
_MOST_BYTES: Final = 4 << 20

log = structlog.get_logger(__name__)


class ManualModel:
    """Waits for answers in a folder."""

    def __init__(self, folder: Path, *, poll_s: float = POLL_S) -> None:
        """Begin with this folder. It is made with the first question."""
        self._folder = folder
        self._poll_s = poll_s
        self._writing = anyio.Lock()
        self.waiting: list[Path] = []
        """Prompts that have no answer yet."""

    async def complete(self, request: Request) -> Answer:
        """Wait for the answer in its file. Raises a permanent `ModelError` if the files cannot be used."""
        started = anyio.current_time()
        try:
            async with self._writing:
                prompt = await anyio.to_thread.run_sync(self._put, request)
            with self._told(prompt):
                text = await self._answer(_answer_path(prompt))
        except OSError as error:
            said = f"the prompts' folder {str(self._folder)!r} cannot be used: {error.strerror or error}"
            raise ModelError(said, permanent=True) from error
        usage = estimated_usage(request, text)
        return Answer(text=text, model="manual", usage=usage, latency_s=anyio.current_time() - started)

    async def aclose(self) -> None:
        """Do nothing: unanswered prompts stay."""

    @contextmanager
    def _told(self, prompt: Path) -> Iterator[None]:
        self.waiting.append(prompt)
        log.warning("waiting for an answer", prompt=str(prompt), answer=_answer_path(prompt).name)
        try:
            yield
        finally:
            self.waiting.remove(prompt)

    def _put(self, request: Request) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        number = 0
        for path in sorted(self._folder.iterdir()):
            if (name := _OURS.fullmatch(path.name)) is None:  # people keep notes beside
                continue
            number = max(number, int(name["number"]))
            if path.read_bytes().decode("utf-8", "replace") == _content(request, path):
                return path
        path = self._folder / f"{number + 1:03}-{request.role}.md"
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(_content(request, path), encoding="utf-8")
        fresh.replace(path)
        return path

    async def _answer(self, path: Path) -> str:
        before: tuple[int, int] | None = None
        while True:
            now = await anyio.to_thread.run_sync(_state, path)
            if now is not None and now == before:
                return await anyio.to_thread.run_sync(_read, path)
            before = now
            await anyio.sleep(self._poll_s)


def _content(request: Request, path: Path) -> str:
    head = _HEAD.format(request_id=request.request_id, answer=_answer_path(path).name)
    return f"{head}\n\n{request.system}\n\n{request.prompt}\n".encode("utf-8", "replace").decode("utf-8")


def _answer_path(prompt: Path) -> Path:
    return prompt.with_name(prompt.stem + _ANSWER)


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_size, found.st_mtime_ns) if found.st_size else None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace")
