"""Part of exported modules: a function, or a torch module, made like the reference's model and given its state.

Values that a module derives from its state are kept while the same tensors are given, unchanged; other tensors make it
anew. (Changes by way of `tensor.data` are not seen: PyTorch does not count them.) Its outputs are copied, so that it
may reuse its own.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence

import torch

from ksearch_async.export.parts.calling import new_outputs, with_numbers
from ksearch_async.export.parts.checking import load_text, make_model, outputs_of, state_names
from ksearch_async.export.parts.facts import CALLING, ENTRY_POINT, OUTPUTS, REFERENCE, SOURCES, TITLE

_held: list[tuple[tuple[torch.Tensor, ...], tuple[tuple[int, int], ...], torch.nn.Module]] = []
"""State, where it lay and in which versions, and the module that was made with it: one at most.

The tensors are kept so that no others can come to lie at their place.
"""


def check_device(device: torch.device) -> None:
    """Accept a CPU and a GPU: the module says itself what it cannot do."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the kernel runs on a CPU or a GPU, and the tensors are on {device}")


def call_kernel(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Call the kernel with the arguments of `forward`; make a module first if the state behind them is another."""
    device = tensors[0].device
    if CALLING == "function":
        kernel, arguments = _function(), tensors
    else:
        reference = _reference_on(device)
        count = len(tensors) - len(state_names(reference))
        kernel, arguments = _module_with(reference, tensors[count:]), tensors[:count]
    with torch.no_grad():
        returned = outputs_of(kernel(*with_numbers(arguments)))
    outputs = new_outputs(device)
    for (name, _, _), output, value in zip(OUTPUTS, outputs, returned, strict=True):
        if value.shape != output.shape or value.dtype != output.dtype:
            raise RuntimeError(f"kernel {TITLE!r} returned another {name} than the reference's")
        output.copy_(value)
    return outputs


def home_device() -> torch.device:
    """Return the current GPU, or else the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


@functools.cache
def _function() -> Callable[..., Sequence[torch.Tensor]]:
    function: Callable[..., Sequence[torch.Tensor]] = vars(load_text("kernel", next(iter(SOURCES.values()))))[
        ENTRY_POINT
    ]
    return function


_references: dict[torch.device, torch.nn.Module] = {}


def _reference_on(device: torch.device) -> torch.nn.Module:
    """Return a model of the reference, which knows what the module is made with. No generator is disturbed."""
    if device not in _references:
        held = random.getstate()
        with torch.random.fork_rng():
            _references[device] = make_model(load_text("reference", REFERENCE), 0, device)
        random.setstate(held)
    return _references[device]


def _module_with(reference: torch.nn.Module, state: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    counted = not any(tensor.is_inference() for tensor in state)
    places = tuple((tensor.data_ptr(), tensor._version) for tensor in state) if counted else ()  # noqa: SLF001
    for _, before, module in _held:
        if counted and before == places:
            return module
    with torch.inference_mode(mode=False):
        module = _made(reference, state)
    _held[:] = [(state, places, module)]
    return module


def _made(reference: torch.nn.Module, state: Sequence[torch.Tensor]) -> torch.nn.Module:
    program = load_text("reference", REFERENCE)
    held = random.getstate()
    with torch.random.fork_rng():
        kernel = load_text("kernel", next(iter(SOURCES.values())))
        module: torch.nn.Module = vars(kernel)[ENTRY_POINT](*program.get_init_inputs())
    random.setstate(held)
    module.to(state[0].device if state else "cpu").train(reference.training)
    _lay_state(module, reference, state)
    return module


def _lay_state(module: torch.nn.Module, reference: torch.nn.Module, state: Sequence[torch.Tensor]) -> None:
    """Give a module the reference's state: by name, or parameters by their order where shapes differ by name."""
    named = dict(zip(state_names(reference), state, strict=True))
    wanted = {name: named[name] for name, _ in reference.named_parameters()}
    own = dict(module.named_parameters())
    known = {**own, **dict(module.named_buffers())}
    laid = {name: value for name, value in named.items() if name in known}
    if not all(name in own and own[name].shape == value.shape for name, value in wanted.items()):
        laid |= dict(zip(own, wanted.values(), strict=True))
    with torch.no_grad():
        for name, value in named.items():
            path, _, attribute = name.rpartition(".")
            holder = dict(module.named_modules()).get(path)
            plain = vars(holder).get(attribute) if holder is not None else None
            if name not in known and isinstance(plain, torch.Tensor) and plain.shape == value.shape:
                plain.copy_(value)
        module.load_state_dict(laid, strict=False)
