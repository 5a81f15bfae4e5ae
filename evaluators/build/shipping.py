"""Transfer of artifacts to another host: an artifact's folder as one blob, and a blob as a folder of the store.

A blob is a list of file names with their contents, not compressed: no links, devices, owners or times. The same folder
always gives the same blob. Blobs come from other hosts. Covered: names that lead out of the folder or clash, too many
or too large files, a blob of another artifact or cut short. Both functions block: call them in a thread.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evaluators.build.builder import META, ArtifactMeta, artifact_folder, load_meta, publish
from evaluators.build.folders import is_plain_name, name_clash
from messages.base import EvaluatorError
from messages.events import Built

MAX_FILES = 1000
MAX_BYTES = 256 << 20
"""Most bytes of all files of an artifact together, as the bus carries."""
_ARTIFACT_ID = re.compile(r"[0-9a-f]{1,64}")
ARRIVING = ".arriving-"
"""Prefix of the names of incomplete folders."""


class PackedFile(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One file of an artifact."""

    path: str
    """Relative, with forward slashes."""
    content: bytes


class PackedArtifact(msgspec.Struct, frozen=True, kw_only=True, tag="artifact.v1"):
    """A blob: a whole artifact."""

    artifact_id: str
    files: tuple[PackedFile, ...]
    """Sorted by path."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PackedArtifact)
_meta = msgspec.json.Decoder(ArtifactMeta)


def pack(artifacts: Path, artifact_id: str) -> bytes:
    """Return an artifact of the store as a blob."""
    check_artifact_id(artifact_id)
    load_meta(artifacts, artifact_id)
    folder = artifact_folder(artifacts, artifact_id)
    files: list[PackedFile] = []
    size_bytes = 0
    try:
        for path in sorted(_regular_files(folder), key=lambda found: found.relative_to(folder).as_posix()):
            content = path.read_bytes()
            size_bytes += len(content)
            if size_bytes > MAX_BYTES or len(files) >= MAX_FILES:
                raise EvaluatorError(
                    f"artifact {artifact_id!r} is too large to be sent: it has more than {MAX_FILES} files or "
                    f"{MAX_BYTES >> 20} MiB"
                )
            files.append(PackedFile(path=path.relative_to(folder).as_posix(), content=content))
        return _encoder.encode(PackedArtifact(artifact_id=artifact_id, files=tuple(files)))
    except (OSError, UnicodeEncodeError) as error:
        raise EvaluatorError(f"artifact {artifact_id!r} cannot be packed: {error}") from error


def unpack(artifacts: Path, artifact_id: str, packed: bytes) -> None:
    """Put a blob's artifact into the store, completely or not at all. An existing one stays.

    Raises:
        EvaluatorError: the blob is broken or of another artifact, or the store failed.
    """
    artifact = _checked(artifact_id, packed)
    arriving = artifacts / f"{ARRIVING}{uuid.uuid4().hex}"
    try:
        for file in artifact.files:
            path = arriving / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
        publish(arriving, artifact_folder(artifacts, artifact_id))
    except OSError as error:
        raise EvaluatorError(f"the artifact store {str(artifacts)!r} failed: {error}") from error
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def check_artifact_id(artifact_id: str) -> None:
    """Check that a text can be the name of an artifact's folder: a content hash."""
    if _ARTIFACT_ID.fullmatch(artifact_id) is None:
        raise EvaluatorError(f"{artifact_id[:200]!r} names no artifact")


def _regular_files(folder: Path) -> Iterator[Path]:
    """Yield the folder's files without links, which would point elsewhere on another host."""
    for directory, _folders, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _checked(artifact_id: str, packed: bytes) -> PackedArtifact:
    check_artifact_id(artifact_id)
    try:
        artifact = _decoder.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _broken(artifact_id, str(error)) from error
    if artifact.artifact_id != artifact_id:
        raise _broken(artifact_id, f"it holds artifact {artifact.artifact_id[:64]!r}")
    if len(artifact.files) > MAX_FILES or sum(len(file.content) for file in artifact.files) > MAX_BYTES:
        raise _broken(artifact_id, f"it has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
    _check_names(artifact_id, [file.path for file in artifact.files])
    _check_meta(artifact)
    return artifact


def _check_names(artifact_id: str, names: list[str]) -> None:
    for name in names:
        if not is_plain_name(name):
            raise _broken(artifact_id, f"file name {name[:200]!r} cannot be used")
    if clash := name_clash(names):
        raise _broken(artifact_id, f"{clash[:200]!r} is there twice, or is a file and a folder")


def _check_meta(artifact: PackedArtifact) -> None:
    content = next((file.content for file in artifact.files if file.path == META), None)
    if content is None:
        raise _broken(artifact.artifact_id, f"it has no {META}")
    try:
        meta = _meta.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _broken(artifact.artifact_id, f"its {META} cannot be read: {error}") from error
    if meta.artifact_id != artifact.artifact_id:
        raise _broken(artifact.artifact_id, f"its {META} is of artifact {meta.artifact_id[:64]!r}")
    if not isinstance(meta.outcome, Built) or meta.product not in {file.path for file in artifact.files}:
        raise _broken(artifact.artifact_id, f"its product {meta.product[:200]!r} is not in it")


def _broken(artifact_id: str, why: str) -> EvaluatorError:
    return EvaluatorError(f"the content sent for artifact {artifact_id!r} cannot be used: {why}")
