"""The evaluator as calls: text or path, one source or several, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

import ksearch_async
from tests.evaluators.words import RIGHT, SMALL_TASK, after

WRONG = after("y[3] = 7;")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.py").write_text(SMALL_TASK.text)
    (tmp_path / "right.cpp").write_text(RIGHT)
    (tmp_path / "wrong.cpp").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_text_is_judged_like_a_file_and_tells_device_compiler_and_seconds() -> None:
    found = ksearch_async.evaluate_sync(SMALL_TASK.text, WRONG, language="cpp")
    assert (found.fate, found.good, found.language) == ("wrong", False, "cpp")
    assert "output[0, 3] is 7" in found.reason
    assert found.device
    assert found.target.march
    assert found.build_s > 0
    assert found.seconds == found.build_s + found.judge_s
    assert (found.speedup_vs_reference, found.speedup_interval, found.latency_us, found.score) == (None,) * 4


def processes() -> set[psutil.Process]:
    """Return what descends from this process; servers that other tests share are among them."""
    return set(psutil.Process().children(recursive=True))


@pytest.mark.long
@pytest.mark.anyio
async def test_several_sources_share_a_judge_and_come_back_in_their_order(workplace: Path) -> None:
    others = processes()
    done: list[int] = []
    sources: list[str | Path] = [Path("wrong.cpp"), "right.cpp", after("y[3] = 7; y[4] = 8;")]
    found = await ksearch_async.evaluate_many(
        "small.py", sources, language="cpp", on_result=lambda index, _found: done.append(index)
    )
    assert [one.fate == "wrong" for one in found] == [True, False, True]
    assert found[1].fate in ("measured", "unstable")  # on a machine that others use too
    assert "2 of" in found[2].reason
    assert sorted(done) == [0, 1, 2]
    assert processes() <= others


@pytest.mark.anyio
async def test_a_judge_that_is_kept_has_the_same_processes_for_the_next_source(workplace: Path) -> None:
    others = processes()
    stages: list[str] = []
    async with ksearch_async.open_judge("small.py") as judge:
        first = await judge.evaluate("wrong.cpp", on_stage=stages.append)
        before = set(psutil.Process().children()) - others
        second = await judge.evaluate(after("y[5] = 9;"), language="cpp")
        assert set(psutil.Process().children()) - others == before != set()
    assert (first.fate, second.fate) == ("wrong", "wrong")
    assert stages == ["building", "checking and timing"]
    assert processes() <= others


@pytest.mark.anyio
async def test_what_cannot_be_used_is_refused_before_anything_is_evaluated(workplace: Path) -> None:
    done: list[int] = []
    with pytest.raises(ksearch_async.ConfigError, match="text does not say its language"):
        await ksearch_async.evaluate("small.py", RIGHT)
    with pytest.raises(ksearch_async.ConfigError, match=r"cannot read source 'none.cpp'"):
        await ksearch_async.evaluate_many(
            "small.py", ["right.cpp", "none.cpp"], on_result=lambda index, _found: done.append(index)
        )
    with pytest.raises(ksearch_async.ConfigError, match=r"given as text.* does not define get_inputs"):
        await ksearch_async.evaluate(SMALL_TASK.text.replace("def get_inputs", "def other"), "right.cpp")
    with pytest.raises(ksearch_async.ConfigError, match="did you mean 'softmax_rows'"):
        await ksearch_async.evaluate("softmax_row", "right.cpp")
    with pytest.raises(ksearch_async.ConfigError, match="running event loop") as caught:
        ksearch_async.evaluate_sync("small.py", "right.cpp")
    assert "await ksearch_async.evaluate(" in caught.value.__notes__[0]
    assert done == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"isolation": "stict"}, "isolation: there is no 'stict'"),
        ({"purpose": "confrim"}, "purpose: there is no 'confrim'"),
        ({"library_calls": "alow"}, "library_calls: there is no 'alow'"),
        ({"language": "cp"}, "language: there is no 'cp'"),
        ({"threads": -3}, "threads: expected 0 or more, not -3"),
        ({"threads": "two"}, "threads: expected int, not 'two'"),
        ({"thread": 2}, "there is no setting 'thread'"),
    ],
)
def test_a_setting_that_is_none_is_refused_as_the_flag_is(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ksearch_async.ConfigError, match=said):
        ksearch_async.evaluate_sync(SMALL_TASK.text, WRONG, **({"language": "cpp"} | settings))  # type: ignore[arg-type]
