"""FlashInfer-Bench's definitions and workloads as tasks. Reads files; runs nothing of them and imports no torch.

    flashinfer:FOLDER#DEFINITION               five workloads, drawn with seed 0
    flashinfer:FOLDER#DEFINITION:draw=5,seed=7,hidden=3
    flashinfer:FOLDER#DEFINITION:all           or the ids of some, with commas, or `small`
    flashinfer:#DEFINITION                     of the folder that FIB_DATASET_PATH names

The folder is one that upstream's tools read (a TraceSet). Candidates in Python take inputs and outputs, as upstream's
destination-passing style has it; those in other languages have our own contract.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from evaluators.tasks.flashinfer.checks import has_check, require_indexer, require_sampling
from evaluators.tasks.flashinfer.problem import dimensions_of, problem_text
from evaluators.tasks.flashinfer.prompting import notes_for
from evaluators.tasks.flashinfer.recordings import Recordings, recorded_inputs
from evaluators.tasks.flashinfer.schema import Definition, Workload
from evaluators.tasks.flashinfer.selection import SMALL, select
from evaluators.tasks.flashinfer.trace_set import definition_names, find_root, read_definition, read_workloads
from messages import tasks
from messages.base import ConfigError
from messages.tasks import SourceFile, TaskSpec, Tolerance

VARIABLE = "FIB_DATASET_PATH"
"""Names the folder where none is given, for upstream's tools as here."""
ENTRY_POINT = "run"
_LOW_BIT = "moe_fp8_block_scale"
MATCHED_RATIO = 0.95
"""Part of the elements that must fit in mixtures of experts, whose values of eight bits round differently."""
_DRAWN = "drawn_inputs.py"
_CHECKS = "drawn_outputs.py"
_RECORDED = "recorded_inputs.py"


def read_task(selector: str, environment: Mapping[str, str] = os.environ) -> TaskSpec:
    """Return the task of a selector: what stands behind `flashinfer:`, in one of the forms above.

    Raises:
        ConfigError: there is no such folder, definition or workload, a file breaks the format's rules, or its outputs
            need a check that is not made here.
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
    """Say whether a path is a TraceSet, or a definition in one."""
    if path.suffix == ".json":
        return any(parent.name == "definitions" for parent in list(path.parents)[:3])
    return (path / "definitions").is_dir() or (path / "flashinfer_trace" / "definitions").is_dir()


def locate(selector: str, environment: Mapping[str, str] = os.environ) -> tuple[Path, str, str]:
    """Return folder, definition's name and selection of workloads.

    Raises:
        ConfigError: no folder is named, or no definition.
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
    """Return what upstream lets through: of low-bit mixtures of experts 95 % of the elements, of others none wrong."""
    if _LOW_BIT in definition.name:
        return Tolerance(profile=f"flashinfer:{MATCHED_RATIO}")
    return Tolerance(profile="flashinfer")


def require_check(definition: Definition) -> None:
    """Refuse definitions whose outputs upstream checks in ways that are not made here.

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
