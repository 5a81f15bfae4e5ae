"""Stores stay below their bound, and what is in use stays in them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluators.build.storage import STALE_S, hold, trim

KIB = 1 << 10
ROOT = Path(__file__).parents[3]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four artifacts of 10 KiB, `a0` the oldest."""
    for number in range(4):
        folder = tmp_path / f"a{number}"
        folder.mkdir()
        (folder / "meta.json").write_bytes(b"{}")
        (folder / "kernel.so").write_bytes(bytes(10 * KIB))
        age_s = 1000 - number
        os.utime(folder, (time.time() - age_s, time.time() - age_s))
    return tmp_path


def left_in(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir())


def test_the_oldest_go_until_the_others_fit(store: Path) -> None:
    assert trim(store, max_bytes=25 * KIB) == 2
    assert left_in(store) == ["a2", "a3"]


def test_a_store_that_fits_stays_as_it_is(store: Path) -> None:
    assert trim(store, max_bytes=50 * KIB) == 0
    assert len(left_in(store)) == 4


def test_what_is_held_stays_and_goes_once_it_is_released(store: Path) -> None:
    held = hold(store, "a0")
    assert held is not None
    assert trim(store, max_bytes=0) == 3
    assert left_in(store) == ["a0"]
    held.release()
    assert trim(store, max_bytes=0) == 1
    assert left_in(store) == []


def test_one_that_was_used_is_no_longer_the_oldest(store: Path) -> None:
    held = hold(store, "a0")
    assert held is not None
    held.release()
    trim(store, max_bytes=15 * KIB)
    assert left_in(store) == ["a0"]


def test_what_is_not_there_cannot_be_held(store: Path) -> None:
    assert hold(store, "a9") is None


def test_a_hold_is_respected_by_other_processes_and_ends_with_its_own(store: Path) -> None:
    program = (
        "import sys, pathlib; from evaluators.build.storage import hold; kept = hold(pathlib.Path(sys.argv[1]), 'a0')"
    )
    program += "; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"held\n"
            trim(store, max_bytes=0)
            assert left_in(store) == ["a0"]
        finally:
            holder.kill()
    assert trim(store, max_bytes=0) == 1


def test_what_was_left_unfinished_long_ago_goes_and_what_is_being_built_stays(store: Path) -> None:
    (store / ".building-new").mkdir()
    (store / ".arriving-old").mkdir()
    old = time.time() - STALE_S - 60
    os.utime(store / ".arriving-old", (old, old))
    trim(store, max_bytes=50 * KIB)
    assert ".building-new" in left_in(store)
    assert ".arriving-old" not in left_in(store)


def test_a_store_that_is_not_there_yet_needs_no_trimming(tmp_path: Path) -> None:
    assert trim(tmp_path / "none", max_bytes=0) == 0
