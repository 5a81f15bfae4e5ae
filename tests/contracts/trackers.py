"""What every tracker shows of a run, read back from where its package keeps it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from ksearch_async.follow.tracking.base import Word
from ksearch_async.runs.folder import RunFolder
from ksearch_async.settings.run_config import RunConfig, TrackingSettings, save_config
from messages.codec import Record, encode_line
from messages.facts import AttemptFinished, Decided
from tests.ksearch_async.stories import RUN_ID, story

SECRET = "0123456789abcdef0123456789abcdef01234567"  # noqa: S105 - of this form W&B's are


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a tracker has."""

    figures: dict[str, list[tuple[int, float | None]]]
    """Key → round and value, in order, each time that it was told."""
    parameters: dict[str, object]
    artifacts: dict[str, dict[str, str]]
    """Name → path → text."""
    tables: dict[str, tuple[tuple[str, ...], list[list[object]]]]
    runs: set[str]
    """What the tracker's runs are called."""
    has_failed: bool


def track(name: str, folder: RunFolder, settings: TrackingSettings, environment: dict[str, str]) -> list[Word]:
    """Have a tracker's process tell all that a journal holds, as after a session, and return what it said."""
    command = [sys.executable, "-P", "-m", "ksearch_async.follow.tracking", name, str(folder.path)]
    done = subprocess.run(
        [*command, msgspec.json.encode(settings).decode()],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=110,
        check=False,
    )
    words = [msgspec.json.decode(line, type=Word) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (words, (folder.path / "tracking" / f"{name}.log").read_text())
    return words


def run_in(runs_dir: Path, records: list[Record]) -> RunFolder:
    """Return a run's folder with these records, whatever it held before."""
    folder = RunFolder(runs_dir / RUN_ID)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.journal.write_bytes(b"".join(map(encode_line, records)))
    save_config(RunConfig(task="relu"), folder.config)
    return folder


class TrackerContract:
    """Two sessions of one run: the first was killed after its first round, the second went on to the end."""

    name: str

    @classmethod
    def environment(cls, place: Path) -> dict[str, str]:
        """Return what has the package keep everything below a folder."""
        raise NotImplementedError

    @classmethod
    def read(cls, place: Path) -> Seen:
        """Return what the package keeps; the run's folder is `runs/RUN_ID` there."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def words(cls, place: Path) -> list[list[Word]]:
        """Track both sessions, and return what the tracker's process said of each."""
        settings = TrackingSettings(to=cls.name, project="kernels", group="seeds", tags=("first",))
        first_round = next(number for number, record in enumerate(story(), start=1) if _ends_a_round(record))
        sessions, environment = (story()[:first_round], story()), cls.environment(place)
        return [track(cls.name, run_in(place / "runs", known), settings, environment) for known in sessions]

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return a folder of this class's own, with room for runs."""
        return tmp_path_factory.mktemp(cls.name)

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, place: Path, words: list[list[Word]]) -> Seen:
        """Return what the tracker has of both."""
        assert words
        return cls.read(place)

    def test_scores_have_the_originals_names_and_stand_at_their_rounds(self, seen: Seen) -> None:
        """A failed round has no score; what a tracker knows no null for it leaves out."""
        assert _known(seen.figures["relu/generate/speedup"]) == [(2, 2.0)]
        assert _known(seen.figures["relu/generate/best_speedup"]) == [(2, 2.0)]

    def test_our_own_figures_stand_beside_them(self, seen: Seen) -> None:
        """Each round is told once, though two sessions told of them."""
        assert seen.figures["fates/wrong"] == [(1, 1.0), (2, 1.0)]
        assert _known(seen.figures["best/latency_us"]) == [(2, 50.0)]
        assert [at for at, _ in seen.figures["run/elapsed_s"]] == [1, 2]

    def test_the_settings_are_there_under_the_originals_names(self, seen: Seen) -> None:
        """The original's are nested."""
        assert seen.parameters["task"] == "relu"
        assert str(seen.parameters["max_opt_rounds"]) == "2"
        assert seen.parameters["generator.target_gpu"] == "AMD EPYC"

    def test_the_code_of_a_correct_round_is_there_with_what_led_to_it(self, seen: Seen) -> None:
        """A wrong one's is not."""
        files = seen.artifacts["r2_code"]
        assert files["clean/kernel.cpp"] == "// fast\n"
        assert "fuse the passes" in files["wm/world_model.json"]
        assert files["eval/round_summary.txt"].startswith("round 2: measured: 2.00x")
        assert "raw/raw_code.txt" in files
        assert "r1_code" not in seen.artifacts

    def test_snapshots_of_the_world_model_are_there(self, seen: Seen) -> None:
        """One is told after each change that the planner's model makes."""
        (snapshot,) = (files for name, files in seen.artifacts.items() if "world-model" in name)
        (text,) = snapshot.values()
        assert [node["node_id"] for node in json.loads(text)["nodes"]] == ["n0", "n1"]

    def test_tables_hold_everything_at_the_end(self, seen: Seen) -> None:
        """The rounds of both sessions."""
        columns, rows = seen.tables["attempts"]
        assert columns[:4] == ("round", "node", "action", "fate")
        assert [row[3] for row in rows] == ["wrong", "measured"]
        assert set(seen.tables) >= {"attempts", "bests", "nodes"}

    def test_both_sessions_are_one_run(self, seen: Seen, words: list[list[Word]]) -> None:
        """It is known by our id."""
        assert seen.runs == {RUN_ID}
        assert not seen.has_failed
        assert [[word.kind for word in told] for told in words] == [["begun", "ended"]] * 2
        assert [told[-1].dropped for told in words] == [0, 0]

    def test_no_key_is_written_anywhere(self, place: Path, seen: Seen) -> None:
        """Keys are in the environment only."""
        assert seen.runs
        found = [path for path in place.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        assert found == []


def _ends_a_round(record: Record) -> bool:
    return isinstance(record.body, Decided) and any(isinstance(fact, AttemptFinished) for fact in record.body.facts)


def _known(told: Iterable[tuple[int, float | None]]) -> list[tuple[int, float | None]]:
    return [(at, value) for at, value in told if value is not None]
