"""Reads what an offline run of Weights & Biases keeps: records in LevelDB's log format, each a protobuf message."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK_BYTES = 1 << 15
_HEAD = struct.Struct("<IHB")
"""Checksum, length, and which part of a record: 1 all of it, 2 the first, 3 one between, 4 the last."""
_FILE_HEAD_BYTES = 7


def records_in(path: Path) -> Iterator[Any]:
    """Yield the messages of a `.wandb` file."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - an extra's

    for payload in _payloads(path.read_bytes()):
        record = Record()
        record.ParseFromString(payload)
        yield record


def _payloads(content: bytes) -> Iterator[bytes]:
    assert content[:4] == b":W&B"
    at, parts = _FILE_HEAD_BYTES, list[bytes]()
    while at + _HEAD.size <= len(content):
        room = _BLOCK_BYTES - at % _BLOCK_BYTES
        if room < _HEAD.size:
            at += room
            continue
        _, length, part = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        parts.append(content[at : at + length])
        at += length
        if part in (1, 4):
            yield b"".join(parts)
            parts.clear()
