"""The original K-Search's flags: each does its job or is refused by name, and the guide says so of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluators.judge.time.sampling import POLICIES
from evaluators.tasks.kernelbench import find_problem
from ksearch_async.cli import main
from ksearch_async.cli.original import (
    CHECKED_CALLS,
    FLAGS,
    OriginalFlag,
    translated,
)
from ksearch_async.settings.options import SETTINGS
from messages.base import ConfigError
from tests.ksearch_async.cli.test_dry_run import PLUS_ONE

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "coming-from-k-search.md"

_FLAGS = """
    api-key artifacts-dir atol base-url baseline-solution continue-from-solution continue-from-world-model definition
    feedback-trace-policy feedback-workloads gpumode-keep-tmp gpumode-mode gpumode-task-dir iterations
    kernelbench-eval-mode kernelbench-level kernelbench-num-correct-trials kernelbench-num-perf-trials
    kernelbench-problem-id language local max-opt-rounds max-parallel-workloads model-name no-save-results
    num-eval-workload num-trials parallel-workloads rtol run-name save-solutions target-gpu task-path task-source
    use-isolated-runner wandb wandb-project warmup-runs wm-max-difficulty wm-stagnation-window world-model
"""
ORIGINAL = frozenset(_FLAGS.split())
"""All that its argument parser knows, KernelBench's included."""

_VARIABLES = """
    API_KEY ARTIFACTS_DIR BASELINE_SOLUTION BASE_URL CONTINUE_FROM_SOLUTION DATASET_ROOT DEFINITION EVAL_MODE
    GPUMODE_KEEP_TMP GPUMODE_MODE GPUMODE_TASK_DIR KSEARCH_ROOT LANGUAGE LEVEL LLM_API_KEY MAX_OPT_ROUNDS MODEL_NAME
    NUM_CORRECT_TRIALS NUM_PERF_TRIALS PROBLEM_ID RUN_NAME TARGET_GPU WANDB WANDB_API_KEY WANDB_PROJECT WM
    WM_STAGNATION_WINDOW WORLD_MODEL_JSON
"""
SCRIPT_VARIABLES = _VARIABLES.split()
"""Set by its three launch scripts."""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    (tmp_path / "kb" / "KernelBench" / "level2").mkdir(parents=True)
    (tmp_path / "kb" / "KernelBench" / "level2" / "17_Softmax.py").touch()
    (tmp_path / "kb" / "KernelBench" / "level2" / "170_Other.py").touch()
    return tmp_path / "kb"


def refused(*tokens: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        translated(tokens, environment)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_every_flag_of_the_original_is_known_and_only_two_of_its_scripts_are_added() -> None:
    assert {flag.name for flag in FLAGS} == ORIGINAL | {"dataset-root", "num-feedback-workloads"}
    assert len(FLAGS) == len(ORIGINAL) + 2


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_no_flag_is_passed_over_in_silence(flag: OriginalFlag, dataset: Path) -> None:
    given = [f"--{flag.name}"] if flag.is_switch else [f"--{flag.name}", "7"]
    match flag.here:
        case "refused":
            assert f"--{flag.name}: " in refused(*given)
            assert flag.instead in refused(*given)
        case "always":
            translation = translated(given, {})
            assert translation.tokens == ()
            assert f"--{flag.name}" in translation.notes[0]
        case "TASK":
            assert refused(*given)
        case ours if flag.is_switch:
            assert translated(given, {}).tokens == tuple(ours.split())
            assert ours.split()[0].removeprefix("--") in {setting.flag for setting in SETTINGS}
        case ours if flag.name != "world-model":
            assert translated(given, {}).tokens == (ours, "7")
            assert translated([f"--{flag.name}=7"], {}).tokens == (ours, "7")
            assert flag.name == "target-gpu" or ours == "--run-name" or ours[2:] in {one.flag for one in SETTINGS}


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_the_guide_has_a_row_for_every_flag(flag: OriginalFlag) -> None:
    said = f"{flag.said}; {flag.instead}" if flag.instead else flag.said
    here = f"`{flag.here}`" if flag.here.startswith("--") else flag.here
    row = next(line for line in GUIDE.read_text().splitlines() if line.startswith(f"| `--{flag.name}` | "))
    assert row.endswith(f" | {here} | {said} |")


@pytest.mark.parametrize("name", SCRIPT_VARIABLES)
def test_the_guide_says_what_becomes_of_every_variable_of_the_scripts(name: str) -> None:
    text = GUIDE.read_text()
    table = text[text.index("| script's variable") : text.index("## What else")]
    assert f"`{name}`" in table


def test_the_guide_names_only_variables_of_ours_that_exist() -> None:
    known = {setting.variable for setting in SETTINGS} | {"KSEARCH_API_KEY", "KSEARCH_ROOT"}
    words = GUIDE.read_text().replace("`", " ").replace(",", " ").split()
    assert {word.rstrip(".:;") for word in words if word.startswith("KSEARCH_")} <= known


@pytest.mark.parametrize(
    ("tokens", "ours"),
    [
        (["--world-model"], ["--world-model", "evolving"]),
        (["--world-model", "--wm-stagnation-window", "7"], ["--world-model", "evolving", "--window", "7"]),
        (["--world-model", "relu.py"], ["--world-model", "evolving", "relu.py"]),
        (["--world-model", "softmax_rows"], ["--world-model", "evolving", "softmax_rows"]),
        (["--world-model", "frozzen"], ["--world-model", "frozzen"]),
        (["--world-model", "frozen"], ["--world-model", "frozen"]),
        (["--world-model=off"], ["--world-model", "off"]),
    ],
)
def test_the_bare_flag_of_the_world_model_means_evolving(tokens: list[str], ours: list[str]) -> None:
    assert list(translated(tokens, {}).tokens) == ours


def test_words_of_ours_stay_as_they_are() -> None:
    words = ["relu.py", "-c", "run.toml", "--branches", "3", "--model=m", "--json"]
    assert list(translated(words, {}).tokens) == words


@pytest.mark.parametrize("root", ["--dataset-root", "--task-path", "variable"])
def test_a_kernelbench_problem_is_found_by_level_and_number(root: str, dataset: Path) -> None:
    words = ["--task-source", "kernelbench", "--kernelbench-level", "2", "--kernelbench-problem-id", "17"]
    words += [] if root == "variable" else [root, str(dataset)]
    environment = {"DATASET_ROOT": str(dataset)} if root == "variable" else {}
    expected = str(dataset / "KernelBench" / "level2" / "17_Softmax.py")
    assert translated(words, environment).tokens == (expected,)
    assert find_problem(dataset / "KernelBench", 2, 17) == Path(expected)


@pytest.mark.parametrize(
    ("words", "task"),
    [
        ("--task-source flashinfer --local set --definition rmsnorm", "flashinfer:set#rmsnorm"),
        ("--task-path set --definition rmsnorm", "flashinfer:set#rmsnorm"),
        ("--definition rmsnorm", "flashinfer:from/variable#rmsnorm"),
        ("--local s --definition d --feedback-workloads a1 b2 --language triton", "flashinfer:s#d:a1,b2"),
        ("--local s --definition d --num-feedback-workloads 7", "flashinfer:s#d:draw=7,seed=0"),
    ],
)
def test_a_definition_and_its_feedback_workloads_are_a_task(words: str, task: str) -> None:
    assert translated(words.split(), {"DATASET_ROOT": "from/variable"}).tokens[0] == task


@pytest.mark.parametrize(
    ("words", "task"),
    [
        ("--gpumode-task-dir problems/trimul", "gpumode:problems/trimul"),
        ("--task-source gpumode --gpumode-mode test --gpumode-keep-tmp", "gpumode:from/variable:test"),
        ("--gpumode-task-dir problems/trimul --gpumode-mode leaderboard", "gpumode:problems/trimul"),
    ],
)
def test_a_folder_of_gpumode_is_a_task(words: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("problems/trimul", "from/variable"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "task.yml").touch()
    assert translated(words.split(), {"GPUMODE_TASK_DIR": "from/variable"}).tokens[0] == task


def test_evaluation_on_modal_is_a_device_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    problem = tmp_path / "level1" / "1_Square.py"
    problem.touch()
    words = ["--kernelbench-eval-mode", "modal", "--dataset-root", str(tmp_path)]
    assert translated(words, {}).tokens == (str(problem), "--device", "modal")


def test_the_source_alone_leaves_the_task_to_be_named() -> None:
    assert translated(["--task-source", "flashinfer"], {}).tokens == ()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kernelbench-level", "2"], "give a KernelBench checkout: --dataset-root FOLDER"),
        (["--dataset-root", "nowhere"], "'nowhere' holds no level1/"),
        (["--kernelbench-level", "two"], "--kernelbench-level: expected a whole number, not 'two'"),
        (["--kernelbench-problem-id", "3"], "holds no problem 3"),
        (["--kernelbench-eval-mode", "cloud"], "--kernelbench-eval-mode cloud: it is local or modal"),
        (["--task-source", "tritonbench"], "--task-source tritonbench: flashinfer where a definition is named"),
        (["--gpumode-mode", "profile", "--gpumode-task-dir", "trimul"], "one of benchmark, leaderboard, test"),
        (["--gpumode-mode", "test"], "--gpumode-mode: no problem is named"),
        (["--gpumode-task-dir", "nowhere"], "'nowhere' is no folder of a GPUMode problem"),
        (["--gpumode-task-dir", "t", "--definition", "rmsnorm"], "--gpumode-task-dir says nothing of a task of flash"),
        (["--definition", "rmsnorm"], "give a FlashInfer-Bench dataset: --local FOLDER"),
        (["--local", "dataset"], "--local: no definition is named"),
        (
            ["--task-source", "kernelbench", "--definition", "rmsnorm"],
            "--definition says nothing of a task of kernelbench",
        ),
        (
            ["--definition", "rmsnorm", "--kernelbench-level", "1"],
            "--kernelbench-level says nothing of a task of flashinfer",
        ),
        (["--definition", "rmsnorm", "--local", "d", "--num-feedback-workloads", "all"], "expected a whole number"),
        (["--kernelbench-num-correct-trials", "100"], "give at most 8"),
        (["--model-name"], "--model-name needs a value"),
        (["--model-name", "--save-solutions"], "--model-name needs a value"),
        (["--save-solutions=yes"], "--save-solutions takes no value"),
    ],
)
def test_what_cannot_be_used_is_said_with_what_can(words: list[str], said: str, dataset: Path) -> None:
    level = ["--kernelbench-level", "2", "--dataset-root", str(dataset)] if "problem-id" in words[0] else []
    environment = {"DATASET_ROOT": str(dataset)} if words[-1] == "two" else {}
    assert said in refused(*words, *level, **environment)


def test_as_many_calls_are_checked_as_is_said() -> None:
    assert min(policy.min_pairs for policy in POLICIES.values()) >= CHECKED_CALLS


def test_a_command_line_of_the_original_reaches_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLM_API_KEY", "sk-secret")
    (tmp_path / "plus_one.py").write_text(PLUS_ONE)
    words = """run plus_one.py --task-source kernelbench --model-name gpt --base-url http://127.0.0.1:9/v1
    --language cpp --max-opt-rounds 12 --save-solutions --artifacts-dir out --kernelbench-num-correct-trials 5
    --world-model --wm-stagnation-window 7 --wm-max-difficulty 4 --run-name My-Run --dry-run --json"""
    assert main(words.split()) == 0
    printed = capsys.readouterr()
    config = json.loads(printed.out)["config"]
    search = config["search"]
    assert (config["model"]["name"], config["model"]["base_url"]) == ("gpt", "http://127.0.0.1:9/v1")
    assert (search["budget"]["max_rounds"], search["stagnation_window"], search["max_difficulty"]) == (12, 7, 4)
    assert (search["world_model"], config["runs_dir"]) == ("evolving", "out")
    assert [line.split()[1] for line in printed.err.splitlines() if line.startswith("note:")] == [
        "--save-solutions:",
        "--kernelbench-num-correct-trials:",
    ]
    assert "sk-secret" not in printed.out + printed.err


def test_the_target_gpu_must_be_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "softmax_rows", "--target-gpu", "No-Such-GPU"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: --target-gpu No-Such-GPU: this run is for ")
    assert printed.out == ""


def test_help_shows_our_flags_and_where_the_originals_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    renamed = [flag.name for flag in FLAGS if flag.here != f"--{flag.name}" or flag.name == "target-gpu"]
    assert not [name for name in renamed if f"--{name} " in shown]
    assert "coming-from-k-search.md" in shown
