"""Findings on tasks, cached in the user's cache folder by task, platform, torch and version of the examination."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import torch

from messages.tasks import Intake, TaskSpec, content_hash

_VERSION = "2"
"""Changes when an examination may have another result for the same task."""

_decoder = msgspec.json.Decoder(Intake)


def kept_or_made(task: TaskSpec, device: str, make: Callable[[], Intake]) -> Intake:
    """Return cached findings, or make and cache them. An unusable cache is ignored."""
    name = content_hash("intake", _VERSION, torch.__version__, task.task_id, device.partition(":")[0])
    path = cache_folder() / f"{name}.json"
    with suppress(OSError, msgspec.MsgspecError):
        return _decoder.decode(path.read_bytes())
    intake = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        fresh.write_bytes(msgspec.json.encode(intake))
        fresh.replace(path)
    return intake


def cache_folder() -> Path:
    """Return the path of the cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ksearch" / "intake"
