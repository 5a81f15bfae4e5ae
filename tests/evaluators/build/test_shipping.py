"""Artifacts as blobs: what arrives is what was sent, and what is hostile or broken leaves the store as it was."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evaluators.build.builder import ArtifactMeta, artifact_folder, load_meta
from evaluators.build.shipping import MAX_FILES, PackedArtifact, PackedFile, pack, unpack
from messages.base import EvaluatorError
from messages.events import Built
from messages.tasks import Target
from messages.verdicts import DidNotBuild

ID = "ab12" * 8
OTHER_ID = "cd34" * 8
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++", device="cpu")


def meta_of(artifact_id: str = ID, *, product: str = "kernel.so", outcome: Built | DidNotBuild | None = None) -> bytes:
    meta = ArtifactMeta(
        artifact_id=artifact_id,
        candidate_id="c1",
        target=TARGET,
        entry_point="ksearch_run",
        product=product,
        outcome=outcome or Built(artifact_id=artifact_id),
    )
    return msgspec.json.encode(meta)


def blob_of(files: dict[str, bytes], artifact_id: str = ID) -> bytes:
    packed = tuple(PackedFile(path=path, content=content) for path, content in files.items())
    return msgspec.msgpack.encode(PackedArtifact(artifact_id=artifact_id, files=packed))


GOOD = {"kernel.so": b"\x7fELF", "meta.json": meta_of(), "src/deep/main.cpp": b"int x;"}


@pytest.fixture
def sender(tmp_path: Path) -> Path:
    folder = tmp_path / "sender" / ID
    for path, content in GOOD.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return tmp_path / "sender"


@pytest.fixture
def receiver(tmp_path: Path) -> Path:
    return tmp_path / "receiver"


def test_what_arrives_is_what_was_sent(sender: Path, receiver: Path) -> None:
    unpack(receiver, ID, pack(sender, ID))
    arrived = artifact_folder(receiver, ID)
    assert {str(path.relative_to(arrived)): path.read_bytes() for path in arrived.rglob("*") if path.is_file()} == GOOD
    assert load_meta(receiver, ID).product == "kernel.so"
    assert [path.name for path in receiver.iterdir()] == [ID]


def test_the_same_artifact_always_gives_the_same_blob(sender: Path, receiver: Path) -> None:
    packed = pack(sender, ID)
    unpack(receiver, ID, packed)
    assert pack(receiver, ID) == packed


def test_one_that_is_there_already_stays_as_it_is(sender: Path, receiver: Path) -> None:
    unpack(receiver, ID, blob_of({**GOOD, "kernel.so": b"first"}))
    unpack(receiver, ID, pack(sender, ID))
    assert (receiver / ID / "kernel.so").read_bytes() == b"first"


def test_links_do_not_travel(sender: Path, receiver: Path) -> None:
    (sender / ID / "link").symlink_to("/etc/passwd")
    (sender / ID / "folder-link").symlink_to("/etc")
    unpack(receiver, ID, pack(sender, ID))
    assert sorted(path.name for path in (receiver / ID).iterdir()) == ["kernel.so", "meta.json", "src"]


def test_an_artifact_that_is_not_there_cannot_be_packed(sender: Path) -> None:
    with pytest.raises(EvaluatorError, match="not in the store"):
        pack(sender, OTHER_ID)


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "a/../../outside",
        "/outside",
        "",
        ".",
        "a//b",
        "a/./b",
        "a/",
        "nul\0byte",
        "line\nfeed",
        "x" * 256,
        "/".join(["y" * 200] * 6),
    ],
)
def test_a_hostile_name_is_refused_and_nothing_is_written(receiver: Path, name: str) -> None:
    with pytest.raises(EvaluatorError, match="file name"):
        unpack(receiver, ID, blob_of({**GOOD, name: b"hostile"}))
    assert not receiver.exists()


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({**GOOD, "kernel.so/inside": b""}, "is a file and a folder"),
        ({**GOOD, "src": b""}, "is a file and a folder"),
        ({"kernel.so": b""}, "no meta.json"),
        ({**GOOD, "meta.json": b"{"}, "cannot be read"),
        ({**GOOD, "meta.json": meta_of(OTHER_ID)}, "is of artifact"),
        ({**GOOD, "meta.json": meta_of(product="../../kernel.so")}, "product"),
        ({**GOOD, "meta.json": meta_of(outcome=DidNotBuild(reason="no"))}, "product"),
        ({**GOOD, **{f"f{number}": b"" for number in range(MAX_FILES)}}, "more than"),
    ],
)
def test_what_is_no_whole_artifact_is_refused(receiver: Path, files: dict[str, bytes], complaint: str) -> None:
    with pytest.raises(EvaluatorError, match=complaint):
        unpack(receiver, ID, blob_of(files))
    assert not receiver.exists()


def test_a_name_that_is_there_twice_is_refused(receiver: Path) -> None:
    files = (
        *(PackedFile(path=path, content=text) for path, text in GOOD.items()),
        PackedFile(path="src/a", content=b""),
    )
    blob = msgspec.msgpack.encode(PackedArtifact(artifact_id=ID, files=(*files, files[-1])))
    with pytest.raises(EvaluatorError, match="twice"):
        unpack(receiver, ID, blob)


def test_a_blob_that_is_cut_short_random_or_of_another_artifact_is_refused(sender: Path, receiver: Path) -> None:
    packed = pack(sender, ID)
    for broken in (packed[:-1], packed[: len(packed) // 2], b"", bytes(range(256)), packed + b"\0"):
        with pytest.raises(EvaluatorError, match="cannot be used"):
            unpack(receiver, ID, broken)
    with pytest.raises(EvaluatorError, match="it holds artifact"):
        unpack(receiver, OTHER_ID, packed)
    assert not receiver.exists()


@pytest.mark.parametrize("artifact_id", ["..", "../x", "a/b", "", ".hidden", "ABC", "a" * 65])
def test_an_artifact_id_that_is_no_hash_names_no_folder(sender: Path, artifact_id: str) -> None:
    with pytest.raises(EvaluatorError, match="names no artifact"):
        pack(sender, artifact_id)
    with pytest.raises(EvaluatorError, match="names no artifact"):
        unpack(sender, artifact_id, blob_of(GOOD, artifact_id))
