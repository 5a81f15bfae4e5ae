"""The real thing, small: built-in rules, real compiler, real measurements, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evaluators.patience import too_busy
from tests.ksearch_async.test_cli import ksearch

ROWS, HIDDEN = 256, 1024
PROBLEM = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x, gate):
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + 1e-6) * self.weight * torch.nn.functional.silu(gate)

def get_inputs():
    return [torch.randn({ROWS}, {HIDDEN}), torch.randn({ROWS}, {HIDDEN})]

def get_init_inputs():
    return [{HIDDEN}]
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a problem file and one finished run of four rounds."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "gate.py").write_text(PROBLEM)
    done = ksearch(
        *("run", "gate.py", "--max-rounds", "4", "--branches", "2", "--json"),
        cwd=folder,
        environment={"KSEARCH_API_KEY": "sk-very-secret"},
        timeout_s=110,
    )
    assert done.returncode in (0, 1), done.stderr
    (folder / "events.jsonl").write_text(done.stdout)
    return folder


def shown(workplace: Path, *words: str) -> dict[str, object]:
    done = ksearch(*words, "--json", cwd=workplace)
    assert done.stderr == ""
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


def test_the_run_spends_its_rounds_and_ends_with_run_finished(workplace: Path) -> None:
    events = [json.loads(line) for line in (workplace / "events.jsonl").read_text().splitlines()]
    assert events[0]["kind"] == "run.started"
    assert events[-1]["kind"] == "run.finished"
    assert (events[-1]["rounds"], events[-1]["stopped_by"]) == (4, "rounds")
    assert sum(event["kind"] == "attempt.finished" and event["round"] > 0 for event in events) == 4


def test_the_folder_holds_journal_configuration_best_and_log(workplace: Path) -> None:
    (run,) = (workplace / "runs").iterdir()
    assert {"config.json", "journal.jsonl", "candidates", "ksearch.log"} <= {path.name for path in run.iterdir()}
    assert (run / "best").is_dir() == (shown(workplace, "best", "latest")["best"] is not None)
    assert "evaluation.finished.v1" in (run / "journal.jsonl").read_text()


def test_no_key_is_written_anywhere(workplace: Path) -> None:
    for path in (workplace / "runs").rglob("*"):
        assert not path.is_file() or b"very-secret" not in path.read_bytes()


def test_show_and_best_agree_with_the_runs_last_line(workplace: Path) -> None:
    last = json.loads((workplace / "events.jsonl").read_text().splitlines()[-1])
    assert shown(workplace, "best", "latest")["best"] == last["best"]
    summary = shown(workplace, "show", "latest")
    assert (summary["best"], summary["rounds"], summary["state"]) == (last["best"], 4, "ended")


def test_resuming_a_run_that_is_over_says_so_and_does_nothing(workplace: Path) -> None:
    (journal,) = (workplace / "runs").glob("*/journal.jsonl")
    before = journal.read_bytes()
    done = ksearch("resume", "latest", cwd=workplace)
    assert done.returncode in (0, 1)
    assert "its rounds are used up" in done.stdout
    assert "is over: nothing was started\nhint: it goes on with a larger budget" in done.stderr
    assert journal.read_bytes() == before


def test_the_best_kernel_can_be_evaluated_again_in_a_new_process(workplace: Path) -> None:
    best = shown(workplace, "best", "latest")["best"]
    if best is None:
        too_busy("no candidate's time was confirmed")
    assert isinstance(best, dict)
    done = ksearch("eval", "gate.py", best["path"], "--json", cwd=workplace)
    again = json.loads(done.stdout)
    assert again["verdict"] in ("measured", "unstable")
    assert (done.returncode == 0) == (again["verdict"] == "measured")
