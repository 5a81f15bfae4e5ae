"""Problems that name a GPU, `device="cuda"` or `.cuda()`, on a host that has none: there it means the CPU.

- `redirected(device: str)`: a context manager within which programs see a GPU that is the CPU; nothing on a GPU
- `interpret_triton()`: has `@triton.jit` functions run by Triton's interpreter; before triton is imported

Covered: arguments of torch's functions and methods that name a device, `.cuda()`, `.is_cuda`, `torch.Generator`, what
programs ask `torch.cuda` (properties, streams, synchronisation), and Triton's driver. Not covered: events (there is no
time to be had), memory statistics, graphs, NCCL, and whatever asks the CUDA driver itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

_T = TypeVar("_T")
_GPU = "cuda"
_CAPABILITY = (9, 0)
"""Of what is pretended: programs choose block sizes by it."""
_PROCESSORS = 4
"""Few: programs that are persistent loop over as many, and the interpreter is slow."""
_SHARED_BYTES = 227 << 10
_WARP = 32
_IS_CUDA = vars(torch._C.TensorBase)["is_cuda"].__get__  # noqa: SLF001 - the way torch itself names the property


class _ToDevice(TorchFunctionMode):
    """Sends what is meant for a GPU to another device."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch with other devices."""
        given = dict(options or {})
        if function is torch.Tensor.cuda:
            return arguments[0].to(self._device)
        if function == _IS_CUDA:
            return True
        if function is torch.Tensor.pin_memory:
            return arguments[0]
        given.pop("pin_memory", None)
        moved = {name: self._moved(value) for name, value in given.items()}
        if isinstance(moved.get("device"), int):
            moved["device"] = self._device
        return function(*(self._moved(value) for value in arguments), **moved)

    def _moved(self, value: object) -> object:
        if isinstance(value, torch.device) and value.type == _GPU:
            return torch.device(self._device)
        if isinstance(value, str) and (value == _GPU or value.startswith(f"{_GPU}:")):
            return self._device
        return value


@contextlib.contextmanager
def redirected(device: str) -> Iterator[None]:
    """Have a GPU that is named mean `device`, unless that is a GPU itself. May be nested; not for several threads."""
    if not device.startswith("cpu") or _is_redirected():
        yield
        return
    _pretend_driver()
    raw_stream = {"_cuda_getCurrentRawStream": lambda *_: 0}
    with (
        _put(torch.cuda, _cuda_answers()),
        _put(torch, {"Generator": _Generator}),
        _put(torch._C, raw_stream),  # noqa: SLF001 - what compiled programs import from there
        _ToDevice(device),
    ):
        yield


def interpret_triton() -> None:
    """Have Triton's interpreter run what is decorated from now on, autotuned kernels in their first configuration.

    Raises:
        RuntimeError: triton was imported before, to compile: its own functions are no longer to be interpreted.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" and "triton.language" in sys.modules:
        raise RuntimeError("triton was imported before it was to be interpreted")
    os.environ["TRITON_INTERPRET"] = "1"
    from evaluators.runners.autotune import take_first_configurations  # noqa: PLC0415 - it imports triton

    take_first_configurations()


def _is_redirected() -> bool:
    return torch.Generator is not _TorchGenerator


_TorchGenerator = torch.Generator


class _Generator:
    """Makes generators of the one device; a class, since annotations name it."""

    def __new__(cls, device: object = "cpu") -> torch.Generator:  # type: ignore[misc]  # noqa: ARG004 - there is one
        return _TorchGenerator("cpu")


def _cuda_answers() -> dict[str, object]:
    """Return what `torch.cuda` says of one GPU that does everything at once."""
    stream = SimpleNamespace(
        cuda_stream=0, synchronize=_nothing(), wait_stream=_nothing(), record_event=_nothing(), wait_event=_nothing
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing(),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing(),
        "device": _context(),
        "device_of": _context(),
        "_DeviceGuard": _context(),
        "_exchange_device": lambda *_: 0,
        "_maybe_exchange_device": lambda *_: 0,
        "stream": _context(),
        "Stream": lambda *_, **__: stream,
        "current_stream": lambda *_, **__: stream,
        "default_stream": lambda *_, **__: stream,
        "synchronize": _nothing(),
        "empty_cache": _nothing(),
        "reset_peak_memory_stats": _nothing(),
        "manual_seed": _nothing(),
        "manual_seed_all": _nothing(),
        "get_device_name": lambda *_, **__: "CPU",
        "get_device_capability": lambda *_, **__: _CAPABILITY,
        "get_device_properties": lambda *_, **__: SimpleNamespace(
            name="CPU",
            major=_CAPABILITY[0],
            minor=_CAPABILITY[1],
            multi_processor_count=_PROCESSORS,
            total_memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            shared_memory_per_block_optin=_SHARED_BYTES,
            warp_size=_WARP,
        ),
        "is_bf16_supported": lambda *_, **__: True,
    }


def _nothing() -> Callable[..., None]:
    """Return a function that does nothing: another one for each name, since `torch._dynamo` tells them apart so."""
    return lambda *_, **__: None


def _context() -> Callable[..., contextlib.AbstractContextManager[None]]:
    return lambda *_, **__: contextlib.nullcontext()


@contextlib.contextmanager
def _put(holder: object, values: Mapping[str, object]) -> Iterator[None]:
    """Have attributes hold other values for a while."""
    before = {name: vars(holder)[name] for name in values if name in vars(holder)}
    vars(holder).update(values)
    try:
        yield
    finally:
        vars(holder).update(before)
        for name in values.keys() - before.keys():
            del vars(holder)[name]


def _pretend_driver() -> None:
    """Give Triton, where it interprets, a driver that answers what programs ask of one."""
    if os.environ.get("TRITON_INTERPRET") != "1" or "triton.runtime" not in sys.modules:
        return
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - imported by who interprets only
    from triton.runtime import driver  # noqa: PLC0415

    properties = {
        "multiprocessor_count": _PROCESSORS,
        "max_shared_mem": _SHARED_BYTES,
        "max_num_regs": 65536,
        "warpSize": _WARP,
        "sm_clock_rate": 1,
        "mem_clock_rate": 1,
        "mem_bus_width": 1,
    }
    target = GPUTarget(_GPU, _CAPABILITY[0] * 10 + _CAPABILITY[1], _WARP)
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda *_: 0,
            get_current_target=lambda: target,
            get_active_torch_device=lambda: torch.device("cpu"),
            get_device_interface=lambda: torch.cuda,
            get_device_capability=lambda *_: _CAPABILITY,
            utils=SimpleNamespace(get_device_properties=lambda *_: properties),
        )
    )
