"""FlashInfer-Bench's definitions and workloads as tasks. Reads files; runs nothing of them and imports no torch.

    flashinfer:FOLDER#DEFINITION               five workloads, drawn with seed 0
    flashinfer:FOLDER#DEFINITION:draw=5,seed=7,hidden=3
    flashinfer:FOLDER#DEFINITION:all           or the ids of some, with commas, or `small`
    flashinfer:#DEFINITION                     of the folder that FIB_DATASET_PATH names

The folder is one that upstream's tools read (a TraceSet). Candidates in Python take inputs and outputs, as in
upstream's destination-passing style; those in other languages have our own contract.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from evaluators.tasks.flashinfer.problem_text import (
    TOP_K_INDEXER,
    dimensions_of,
    has_check,
    problem_text,
    require_indexer,
    require_sampling,
)
from evaluators.tasks.flashinfer.trace_set import (
    Argument,
    AxisConst,
    Definition,
    Known,
    Recordings,
    Unknown,
    Workload,
    definition_names,
    find_root,
    holds,
    read_definition,
    read_workloads,
    recorded_inputs,
    said_axis,
)
from messages import tasks
from messages.base import ConfigError
from messages.tasks import SourceFile, TaskSpec, Tolerance

VARIABLE = "FIB_DATASET_PATH"
"""Variable that names the folder if none is given, as for upstream's tools."""
ENTRY_POINT = "run"
_LOW_BIT = "moe_fp8_block_scale"
MATCHED_RATIO = 0.95
"""Share of elements that must match in mixtures of experts, since their values of eight bits round differently."""
_DRAWN = "drawn_inputs.py"
_CHECKS = "drawn_outputs.py"
_RECORDED = "recorded_inputs.py"


def read_task(selector: str, environment: Mapping[str, str] = os.environ) -> TaskSpec:
    """Return the task of a selector: the text after `flashinfer:`, in one of the forms above.

    Raises:
        ConfigError: there is no such folder, definition or workload, a file breaks the format's rules, or its outputs
            need a check that is not supported.
    """
    root, name, selection = locate(selector, environment)
    definition = read_definition(root, name)
    require_check(definition)
    selected = select(definition, read_workloads(root, definition), selection)
    chosen = (*selected.shown, *selected.hidden)
    found = recorded_inputs(root, definition, chosen)
    return TaskSpec(
        name=f"{name}:{selected.told}" if len(selected.told) <= 60 else f"{name}:{len(selected.shown)} workloads",
        source="flashinfer",
        text=problem_text(definition, found.names),
        tolerance=tolerance_of(definition),
        workloads=(
            *(_workload(definition, one, found, hidden=False) for one in selected.shown),
            *(_workload(definition, one, found, hidden=True) for one in selected.hidden),
        ),
        files=_files(definition, found),
        calling="destination",
        entry_point=ENTRY_POINT,
        shown_files=(_DRAWN, _CHECKS) if has_check(definition) else (_DRAWN,),
        notes=notes_for(definition, made_up=found.missing, are_sizes_made_up=selected.told == SMALL),
    )


def recognizes(path: Path) -> bool:
    """Return True if a path is a TraceSet, or a definition in one."""
    if path.suffix == ".json":
        return any(parent.name == "definitions" for parent in list(path.parents)[:3])
    return (path / "definitions").is_dir() or (path / "flashinfer_trace" / "definitions").is_dir()


def locate(selector: str, environment: Mapping[str, str] = os.environ) -> tuple[Path, str, str]:
    """Return folder, definition's name and selection of workloads.

    Raises:
        ConfigError: no folder or no definition is named.
    """
    folder, hash_sign, behind = selector.partition("#")
    name, _, selection = behind.partition(":")
    if not hash_sign and ".json" in folder:
        path, _, rest = folder.partition(".json")
        name, selection = Path(path).name, rest.removeprefix(":")
        parents = [parent for parent in Path(path).expanduser().parents if parent.name == "definitions"]
        folder = str(parents[0].parent) if parents else folder
    folder = folder or environment.get(VARIABLE, "")
    if not folder:
        raise ConfigError(f"flashinfer:{selector}: which folder? Name it before the '#', or set {VARIABLE}")
    root = find_root(Path(folder).expanduser())
    if not name:
        names = definition_names(root)
        shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        raise ConfigError(
            f"{str(root)!r} has {len(names)} definitions; name one behind a '#': flashinfer:{folder}#NAME ({shown})"
        )
    return root, name, selection.strip()


def tolerance_of(definition: Definition) -> Tolerance:
    """Return upstream's tolerance: 95 % of the elements of low-bit mixtures of experts must match, of others all."""
    if _LOW_BIT in definition.name:
        return Tolerance(profile=f"flashinfer:{MATCHED_RATIO}")
    return Tolerance(profile="flashinfer")


def require_check(definition: Definition) -> None:
    """Refuse definitions with outputs that need a check of upstream's that is not supported here.

    Raises:
        ConfigError: it is one of them.
    """
    if number := next((name for name, output in definition.outputs.items() if output.shape is None), None):
        raise ConfigError(f"definition {definition.name!r}: output {number!r} is a number; outputs must be tensors")
    if definition.op_type == "sampling":
        require_sampling(definition)
    elif "topk_indexer" in definition.name:
        require_indexer(definition)


def _files(definition: Definition, found: Recordings) -> tuple[SourceFile, ...]:
    own = [
        SourceFile(path=path, text=_text_of(path)) for path in (_DRAWN, *((_CHECKS,) if has_check(definition) else ()))
    ]
    return (*own, SourceFile(path=_RECORDED, text=found.module)) if found.names else tuple(own)


def _text_of(path: str) -> str:
    return resources.files("evaluators.tasks.flashinfer").joinpath(path).read_text(encoding="utf-8")


def _workload(definition: Definition, workload: Workload, found: Recordings, *, hidden: bool) -> tasks.Workload:
    dimensions = dimensions_of(definition, workload, found.names)
    return tasks.Workload(name=workload.uuid, dimensions=dimensions, hidden=hidden)


FEEDBACK = 5
"""Default number of workloads for timing, as in the original K-Search."""
ALL, SMALL = "all", "small"
_DRAWN_WORDS = ("draw", "seed", "hidden")
_ROUNDS = 12

_SMALL_SIZES = (
    {
        "batch_size": 3,
        "num_pages": 24,
        "num_kv_indices": 17,
        "total_q": 7,
        "total_kv": 19,
        "len_indptr": 4,
        "seq_len": 4,
        "num_tokens": 3,
        "total_seq_len": 9,
        "num_seqs": 2,
        "max_seq_len": 32,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "M": 5,
    },
    {
        "batch_size": 1,
        "num_pages": 13,
        "num_kv_indices": 9,
        "total_q": 2,
        "total_kv": 5,
        "len_indptr": 2,
        "seq_len": 2,
        "num_tokens": 2,
        "total_seq_len": 3,
        "num_seqs": 1,
        "max_seq_len": 16,
        "num_qo_heads": 2,
        "num_kv_heads": 2,
        "M": 1,
    },
)
_OTHER_SIZE = 4
_MORE_PAGES = 4
_SAMPLED_ROWS = 5
"""Factor by which there are more rows if outputs are drawn: each row is one draw in a call."""


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads of a task."""

    shown: tuple[Workload, ...]
    hidden: tuple[Workload, ...] = ()
    told: str
    """The selection as text that gives the same workloads again."""


def select(definition: Definition, workloads: Sequence[Workload], selection: str) -> Selected:
    """Return the workloads of a selection.

    Raises:
        ConfigError: it has none of the forms above, or there are no such workloads.
    """
    if selection == SMALL:
        return Selected(shown=small_workloads(definition), told=SMALL)
    if not workloads:
        raise ConfigError(
            f"definition {definition.name!r} has no workloads in this folder; "
            f"with ':{SMALL}' behind it, sizes are made up for it"
        )
    if selection == ALL:
        return Selected(shown=tuple(workloads), told=ALL)
    if not selection or "=" in selection:
        return _drawn(workloads, _numbers(selection))
    chosen = tuple(_found(workloads, word.strip(), definition.name) for word in selection.split(","))
    uuids = [workload.uuid for workload in chosen]
    return Selected(shown=tuple(dict(zip(uuids, chosen, strict=True)).values()), told=",".join(dict.fromkeys(uuids)))


def small_workloads(definition: Definition) -> tuple[Workload, ...]:
    """Return made-up workloads that are small enough for a CPU and satisfy the constraints.

    Raises:
        ConfigError: no such sizes were found.
    """
    found = (_small(definition, sizes, f"{SMALL}-{number}") for number, sizes in enumerate(_SMALL_SIZES, start=1))
    return tuple({tuple(sorted(one.axes.items())): one for one in found}.values())


def _small(definition: Definition, sizes: dict[str, int], name: str) -> Workload:
    axes = {axis: sizes.get(axis, _OTHER_SIZE) for axis in definition.var_axes}
    if definition.op_type == "sampling":
        axes["batch_size"] = axes.get("batch_size", _OTHER_SIZE) * _SAMPLED_ROWS
    for _ in range(_ROUNDS):
        for constraint in definition.constraints:
            for axis in axes:
                others = {other: size for other, size in _all_axes(definition, axes).items() if other != axis}
                if (said := said_axis(constraint, others)) is not None:
                    axes[axis] = said[1]
        broken = [one for one in definition.constraints if not _may_hold(one, _all_axes(definition, axes))]
        if not broken:
            if "max_num_pages" in axes and "num_pages" in axes:
                # More keys than an indexer selects for most rows, and no page twice in a row.
                axes["max_num_pages"] *= _MORE_PAGES if definition.name.startswith(TOP_K_INDEXER) else 1
                axes["num_pages"] = max(axes["num_pages"], axes["max_num_pages"])
            return Workload(uuid=name, axes=axes, inputs={})
        axes = {axis: 2 * size if any(axis in one for one in broken) else size for axis, size in axes.items()}
    raise ConfigError(f"definition {definition.name!r}: no small sizes were found that keep {broken[0]!r}")


def _all_axes(definition: Definition, axes: dict[str, int]) -> dict[str, Known]:
    return {**definition.const_axes, **axes}


def _may_hold(constraint: str, axes: dict[str, Known]) -> bool:
    try:
        return holds(constraint, axes)
    except Unknown:
        return True


def _drawn(workloads: Sequence[Workload], numbers: dict[str, int]) -> Selected:
    count, seed, hidden = numbers["draw"], numbers["seed"], numbers["hidden"]
    if count < 1 or hidden < 0 or count + hidden > max(len(workloads), FEEDBACK):
        raise ConfigError(
            f"there are {len(workloads)} workloads: {count} to be shown and {hidden} to be hidden do not fit"
        )
    order = random.Random(seed).sample(range(len(workloads)), len(workloads))
    shown, held_out = sorted(order[:count]), sorted(order[count : count + hidden])
    also = f",hidden={hidden}" if hidden else ""
    return Selected(
        shown=tuple(workloads[number] for number in shown),
        hidden=tuple(workloads[number] for number in held_out),
        told=f"draw={count},seed={seed}{also}",
    )


def _numbers(selection: str) -> dict[str, int]:
    numbers = {"draw": FEEDBACK, "seed": 0, "hidden": 0}
    for part in filter(None, selection.split(",")):
        word, _, value = part.strip().partition("=")
        if word not in _DRAWN_WORDS or not value.isdecimal():
            raise ConfigError(f"{part!r} draws no workloads; expected draw=5, seed=7 or hidden=3, with commas")
        numbers[word] = int(value)
    return numbers


def _found(workloads: Sequence[Workload], word: str, name: str) -> Workload:
    found = [workload for workload in workloads if workload.uuid == word]
    found = found or [workload for workload in workloads if word and workload.uuid.startswith(word)]
    if len(found) != 1:
        count = "no workload" if not found else f"{len(found)} workloads with an id that begins with"
        raise ConfigError(
            f"definition {name!r} has {count} {word!r} (it has {len(workloads)}, the first is {workloads[0].uuid}; "
            f"':{ALL}' means all of them)"
        )
    return found[0]


_CONVENTIONS = """\
In Python, candidates are called in upstream's destination-passing style: `run` takes the inputs in the order above,
then the outputs, which are allocated and hold garbage; it writes every element of them and returns None. Numbers are
passed as numbers of Python."""

_EXAMPLE = """\
For inputs x: (rows, columns) and scale: a number, and an output y: (rows, columns), a candidate in Python is:

```python
import torch


def run(x, scale, y):
    torch.mul(x, scale, out=y)
```"""

_INFINITIES = """Where the reference gives -inf (the log-sum-exp of a query that sees no key), so must a candidate."""

_SAMPLING = """\
Outputs are random, and no seed is given: a candidate brings its own random numbers, for example a counter of calls in a
static variable, hashed with the row's number. Each call is checked for tokens that may not be drawn. Over many calls,
on the same inputs and on others, tokens must be drawn as often as their probabilities say, independently from row to
row and from call to call. Which numbers a candidate draws is its own matter, and need not be the reference's."""

_ANY_ORDER = """\
The largest scores may be named in any order. Those that differ from the smallest of them by the rounding of float32
sums only may stand for one another; every other one is asked for."""


def notes_for(definition: Definition, *, made_up: Sequence[str] = (), are_sizes_made_up: bool = False) -> str:
    """Return the definition in words, in Markdown.

    Args:
        definition: the definition.
        made_up: recorded inputs with files that are missing here, so that others are drawn in their place.
        are_sizes_made_up: True if the workloads were not recorded.
    """
    parts = [
        f"This is the FlashInfer-Bench definition `{definition.name}` (`{definition.op_type}`).",
        *([definition.description] if definition.description else []),
        "Axes:\n" + "\n".join(_axis(name, definition) for name in definition.axes),
        "Inputs, in call order:\n" + "\n".join(_argument(*one) for one in definition.inputs.items()),
        "Outputs, in call order:\n" + "\n".join(_argument(*one) for one in definition.outputs.items()),
    ]
    if definition.constraints:
        parts.append("What holds in every workload:\n" + "\n".join(f"- `{one}`" for one in definition.constraints))
    parts.extend((_CONVENTIONS, _EXAMPLE))
    if "lse" in definition.outputs:
        parts.append(_INFINITIES)
    if has_check(definition):
        parts.append(_SAMPLING if definition.op_type == "sampling" else _ANY_ORDER)
    if made_up:
        parts.append(f"Not recorded, drawn instead: {', '.join(f'`{name}`' for name in made_up)}.")
    if are_sizes_made_up:
        parts.append("The sizes of the workloads are made up; none was recorded.")
    return "\n\n".join(parts)


def _axis(name: str, definition: Definition) -> str:
    axis = definition.axes[name]
    size = str(axis.value) if isinstance(axis, AxisConst) else "varies"
    return f"- `{name}`: {size}{_described(axis.description)}"


def _argument(name: str, argument: Argument) -> str:
    shape = "a number" if argument.shape is None else f"({', '.join(argument.shape)})"
    return f"- `{name}`: {shape}, {argument.dtype}{_described(argument.description)}"


def _described(text: str | None) -> str:
    return f". {' '.join(text.split())}" if text else ""
