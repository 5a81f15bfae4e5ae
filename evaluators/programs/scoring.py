"""In the process of one candidate: calls `evaluate(path)` and says in plain data what came of it. Stdlib only.

OpenEvolve's shape: `evaluate` returns a dict of metrics, or an object with `metrics` that is one and with optional
`artifacts` that are texts for the model. `combined_score` counts.

Not covered: a candidate runs in the process that evaluates it, as `evaluate` wants it, and can therefore say any score.
"""

from __future__ import annotations

import importlib.util
import math
import numbers
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

SCORE = "combined_score"
_MAX_ENTRIES = 64
_NAME_CHARS = 100
_TEXT_CHARS = 500
_NOTE_CHARS = 4_000
_TRACE_CHARS = 4_000

Report = dict[str, object]
Evaluate = Callable[[str], object]


class UnusableEvaluatorError(Exception):
    """The evaluator file is at fault; the text says how."""


def load_evaluator(path: str, text: str) -> Evaluate:
    """Run the evaluator file as a module under its own name, with its folder first on the import path.

    Args:
        path: where it lies.
        text: what it holds, as it was when its hash was checked.

    Raises:
        UnusableEvaluatorError: it cannot be imported, or has no function `evaluate`.
    """
    file = Path(path)
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, path)
    if spec is None:
        raise UnusableEvaluatorError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - running it is what it is for
    except BaseException as error:
        raise UnusableEvaluatorError(_in_words(error)) from error
    return _evaluate_of(module)


def _evaluate_of(module: ModuleType) -> Evaluate:
    evaluate = module.__dict__.get("evaluate")
    if not callable(evaluate):
        raise UnusableEvaluatorError("it defines no function evaluate(program_path)")
    found: Evaluate = evaluate
    return found


def score(evaluate: Callable[[], Evaluate], program: str) -> Report:
    """Have a program scored.

    Args:
        evaluate: returns the evaluator's function.
        program: path of the candidate's main file.
    """
    try:
        compile(Path(program).read_bytes(), Path(program).name, "exec")
    except (SyntaxError, ValueError) as error:
        return {"syntax": _in_words(error)}
    try:
        said = evaluate()(program)
    except UnusableEvaluatorError as error:
        return {"unusable": str(error)}
    except MemoryError as error:
        return {"error": _in_words(error), "out_of_memory": True, "trace": _trace(error, program)}
    except BaseException as error:  # noqa: BLE001 - a candidate may raise anything, and what it is becomes data
        return {"error": _in_words(error), "trace": _trace(error, program)}
    return _told(said)


def _told(returned: object) -> Report:
    """Turn what `evaluate` returned into a report."""
    fields = {"metrics": returned} if isinstance(returned, Mapping) else getattr(returned, "__dict__", {})
    metrics = fields.get("metrics")
    if not isinstance(metrics, Mapping):
        return {"no_score": f"evaluate() returned {type(returned).__name__}, not a dict of metrics"}
    report: Report = {"metrics": _entries(metrics), "notes": _notes(fields.get("artifacts"))}
    if SCORE not in metrics:
        named = ", ".join(sorted(str(name) for name in metrics))[:_TEXT_CHARS] or "nothing"
        return report | {"no_score": f"evaluate() returned no {SCORE!r} (it returned: {named})"}
    value = metrics[SCORE]
    number = float(value) if isinstance(value, numbers.Real) else math.nan
    if not math.isfinite(number):
        said = f"evaluate() returned {SCORE} = {str(value)[:_TEXT_CHARS]}, which is no finite number"
        return report | {"no_score": said}
    return report | {"score": number}


def _entries(metrics: Mapping[object, object]) -> dict[str, float | str]:
    first = list(metrics.items())[:_MAX_ENTRIES]
    return {str(name)[:_NAME_CHARS]: _plain(value) for name, value in first}


def _plain(value: object) -> float | str:
    if isinstance(value, numbers.Real) and math.isfinite(float(value)):
        return float(value)
    return str(value)[:_TEXT_CHARS]


def _notes(artifacts: object) -> dict[str, str]:
    if not isinstance(artifacts, Mapping):
        return {}
    return {str(name)[:_NAME_CHARS]: str(value)[:_NOTE_CHARS] for name, value in list(artifacts.items())[:_MAX_ENTRIES]}


def _in_words(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return " ".join(text.split())[:_TEXT_CHARS]


def _trace(error: BaseException, program: str) -> str:
    """Return the traceback without our own frames and without the paths of this host's scratch folders."""
    import traceback  # noqa: PLC0415 - needed by what fails only, and a process starts for every candidate

    trace = error.__traceback__.tb_next if error.__traceback__ else None
    lines = traceback.format_exception(type(error), error, trace)
    return "".join(lines).replace(f"{Path(program).parent}/", "")[-_TRACE_CHARS:]
