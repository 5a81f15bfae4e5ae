"""What every task source promises, as tests; a source's test file is fixtures and a subclass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from evaluators.tasks import load_task
from evaluators.tasks.registry import SOURCES
from evaluators.tasks.selectors import anchored
from messages.base import ConfigError
from messages.tasks import SourceFile

MARK = "ran.txt"


class TaskSourceContract:
    """Promises of `evaluators.tasks.registry.Source`.

    Needs the attribute `source`: the name before the colon; and the fixtures

    - `selector`: what stands behind it, of a task that the fixture has written below `tmp_path`, in whose Python files
      a line at the top level is `open(MARK, "w")` with the absolute path `tmp_path / MARK`: nobody may run it
    - `broken`: (selector, words) of such a task with a mistake, and what the complaint must hold
    """

    source: str

    def test_a_task_is_found_by_its_source_and_comes_from_it(self, selector: str) -> None:
        task = load_task(f"{self.source}:{selector}")
        assert task.source == self.source
        assert task.name
        for name in ("Model", "get_inputs", "get_init_inputs"):
            assert name in task.text

    def test_the_same_task_has_the_same_id_and_another_text_another(self, selector: str) -> None:
        task = load_task(f"{self.source}:{selector}")
        assert load_task(f"{self.source}:{selector}").task_id == task.task_id
        more = (*task.files, SourceFile(path="more.py", text="x = 1\n"))
        assert msgspec.structs.replace(task, files=more).task_id != task.task_id

    def test_workloads_have_names_of_their_own_and_one_is_shown(self, selector: str) -> None:
        task = load_task(f"{self.source}:{selector}")
        names = [workload.name for workload in task.workloads]
        assert len(names) == len(set(names))
        assert task.shown or not names

    def test_reading_runs_nothing_of_the_problem_and_imports_no_torch(self, selector: str, tmp_path: Path) -> None:
        code = (
            f"import sys; from evaluators.tasks import load_task; load_task({f'{self.source}:{selector}'!r});"
            "print([name for name in ('torch', 'triton', 'numpy', 'openai') if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
        assert not (tmp_path / MARK).exists()

    def test_a_name_means_the_same_from_another_folder(
        self, selector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task, name = load_task(f"{self.source}:{selector}"), anchored(f"{self.source}:{selector}")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        assert load_task(name).task_id == task.task_id

    def test_what_is_not_there_is_refused_with_its_name(self, tmp_path: Path) -> None:
        missing = tmp_path / "nowhere" / "at-all"
        with pytest.raises(ConfigError, match="at-all"):
            load_task(f"{self.source}:{missing}")

    def test_a_mistake_in_a_task_is_one_clear_line(self, broken: tuple[str, tuple[str, ...]]) -> None:
        selector, words = broken
        with pytest.raises(ConfigError) as caught:
            load_task(f"{self.source}:{selector}")
        said = str(caught.value)
        assert "\n" not in said
        for word in words:
            assert word in said

    def test_it_does_not_recognize_what_is_not_its_own(self, tmp_path: Path) -> None:
        reader = SOURCES[self.source]
        (tmp_path / "empty").mkdir()
        (tmp_path / "notes.txt").write_text("no task\n")
        assert not reader.recognizes(tmp_path / "empty")
        assert not reader.recognizes(tmp_path / "notes.txt")
        assert not reader.recognizes(tmp_path / "nowhere")

    def test_its_own_reference_is_a_candidate_of_a_task(self, selector: str) -> None:
        task = load_task(f"{self.source}:{selector}")
        candidate = SOURCES[self.source].reference_candidate(task)
        assert candidate.language == "python"
        assert candidate.files

    def test_a_candidate_in_json_is_read_or_refused_with_its_name(self, selector: str) -> None:
        task = load_task(f"{self.source}:{selector}")
        with pytest.raises(ConfigError, match="given"):
            SOURCES[self.source].candidate_of_json("{}", "given.json", task)

    def test_only_a_name_of_a_competition_has_a_ranking(self, selector: str) -> None:
        assert (SOURCES[self.source].find_competition(f"{self.source}:{selector}") is None) == (
            self.source != "gpumode"
        )
