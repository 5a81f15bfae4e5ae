"""Calls a module or a function without a GPU, so that the Triton kernels which it launches are compiled.

A module is made for each workload as a runner makes it. It is called twice, on tensors that have no data
(`evaluators/languages/triton/absent.py`): what a first call keeps, the second may use. Operators of torch compute
shapes only. Where contents decide what is done next, it ends with an error, which says nothing of the candidate.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton.compiler.errors import CompilationError

from evaluators.languages.triton.absent import pretend_gpu
from evaluators.languages.triton.apart import cores
from evaluators.languages.triton.compiling import Compilers
from evaluators.languages.triton.kernel_needs import BlockLimits
from evaluators.runners.inline import offer_built
from evaluators.runners.module_call import lay_state
from evaluators.runners.program import import_from, tell_raised
from evaluators.runners.structure import rebuild

_DEVICE = "cuda:0"
_CALLS = 2


def rehearse(
    job: Mapping[str, object], deadline: float, tell: Callable[[Mapping[str, object]], None], *, waits: bool
) -> None:
    """Compile what the candidate in the working directory launches.

    Args:
        job: the fields of `AheadJob` in `ahead.py`.
        deadline: by `time.monotonic`.
        tell: called with each kernel, as `Compilers` does; with `{"refused": text}` if a kernel's source is wrong
            whenever the module is called, with `{"error": text}` if not everything was compiled, and with `{"again":
            true}` if the entries do not count: launches have to wait for their kernels.
        waits: whether they do.
    """
    folder = os.getcwd()  # noqa: PTH109 - it is compared with file names of frames
    capability = int(str(job["capability"]))
    limits = BlockLimits(capability, int(str(job["shared_bytes"])))
    compilers = Compilers(folder, limits, at_once=cores(), deadline=deadline, waits=waits, tell=tell)
    error = ""
    with pretend_gpu(capability):
        compilers.install()
        _leave_uncompiled()
        try:
            _call_all(folder, job)
        except BaseException as raised:  # noqa: BLE001 - the candidate may raise whatever it likes
            error = tell_raised(raised, folder)
            if isinstance(raised, CompilationError) and compilers.refused and compilers.refused[0] is raised:
                tell({"refused": compilers.refused[1]})
    compilers.wait()
    if compilers.left_out:
        error = error or f"{compilers.left_out} of its kernels, which take too long together or are too many"
    if error:
        tell({"error": error})
    if compilers.is_misled:
        tell({"again": True})


def _leave_uncompiled() -> None:
    """Have `torch.compile` return what it is given: it compiles for what it measures, on the device."""

    def as_it_is(model: object = None, **_how: object) -> object:
        return as_it_is if model is None else model

    vars(torch)["compile"] = as_it_is


def _call_all(folder: str, job: Mapping[str, object]) -> None:
    offer_built(folder)
    kind = import_from(os.path.join(folder, str(job["program"])), str(job["entry_point"]))  # noqa: PTH118 - as above
    calls = job["calls"]
    for call in calls if isinstance(calls, list) else ():
        calling = call["form"]["calling"] if call["form"] else "module"
        function = _made(kind, call) if calling == "module" else kind
        with torch.no_grad():
            for _ in range(_CALLS):
                function(*_arguments(call))


def _arguments(call: Mapping[str, Any]) -> list[object]:
    inputs, outputs = ([_without_data(*told) for told in call[which]] for which in ("inputs", "outputs"))
    form = call["form"]
    if form is None:
        return [*inputs]
    given = rebuild(form["arguments"], inputs, _without_data)
    behind = outputs if form["calling"] == "destination" else []
    return [*given, *behind] if isinstance(given, tuple) else [given, *behind]


def _made(kind: Callable[..., object], call: Mapping[str, Any]) -> torch.nn.Module:
    """Return the candidate's module with the reference's state, as in a runner."""
    arguments: tuple[object, ...] = ast.literal_eval(call["arguments"])
    with torch.device(_DEVICE):
        model = kind(*arguments)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{type(model).__name__} is no torch.nn.Module")
    model = model.to(_DEVICE)
    model.train(call["trains"])
    lay_state(model, {name: _without_data(*told) for name, *told in call["state"]}, call["parameters"])
    return model


def _without_data(shape: Sequence[int], dtype: str) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype), device=_DEVICE)
