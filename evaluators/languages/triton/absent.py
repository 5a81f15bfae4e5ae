"""A GPU that is not here, for programs that launch kernels on it: tensors without data, and answers about the device.

`pretend_gpu(capability)` is entered once, in a process that does nothing else. Inside, tensors on `cuda` are torch's
meta tensors that say they lie on `cuda:0`: shapes, strides and types are right, there are no contents, nothing is
allocated. Triton's launch path finds them aligned as a GPU's allocator would. `torch.cuda` answers for a GPU of the
architecture; streams, events and graphs do nothing, as if all work were done at once. Values that only a real GPU has
(contents, timings) raise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

_WARP_THREADS = 32
_ADDRESS = 1 << 40
"""Of every tensor without an offset: as aligned as what an allocator returns."""
_MEMORY_BYTES = 140 << 30
_META = torch.device("meta")
_GPUS = {
    80: ("NVIDIA A100", 108, 40 << 20, 166_912),
    86: ("NVIDIA A10", 72, 6 << 20, 101_376),
    89: ("NVIDIA L40S", 142, 96 << 20, 101_376),
    90: ("NVIDIA H200", 132, 60 << 20, 232_448),
    100: ("NVIDIA B200", 148, 126 << 20, 232_448),
    120: ("NVIDIA RTX PRO 6000", 188, 128 << 20, 101_376),
}
"""By capability: name, multiprocessors, bytes of L2, shared memory of a block (NVIDIA's data sheets)."""


@contextlib.contextmanager
def pretend_gpu(capability: int) -> Iterator[None]:
    """Have torch and Triton find a GPU in this process; see above. Not undone afterwards.

    Args:
        capability: 90 for `sm_90`.
    """
    driver.set_active(_Driver(capability))
    _answer_for(capability)
    with _TensorsWithoutData():
        yield


class _Driver:
    """Triton's driver of the GPU: says what to compile for, and launches nothing."""

    def __init__(self, capability: int) -> None:
        name, multiprocessors, _, shared_bytes = _GPUS.get(capability, _GPUS[90])
        self._target = GPUTarget("cuda", capability, _WARP_THREADS)
        properties = {
            "max_shared_mem": shared_bytes,
            "max_num_regs": 65536,
            "multiprocessor_count": multiprocessors,
            "warpSize": _WARP_THREADS,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 3_201_000,
            "mem_bus_width": 6144,
            "name": name,
        }
        self.utils = SimpleNamespace(get_device_properties=lambda _device=0: properties)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> object:
        return torch.cuda


class _TensorsWithoutData(TorchFunctionMode):
    """Makes tensors on `cuda` of torch's meta tensors, and answers what would show the difference."""

    def __init__(self) -> None:
        super().__init__()
        tensor = torch.Tensor
        self._answers: list[tuple[object, Callable[[torch.Tensor], object]]] = [
            (tensor.device.__get__, _device),
            (tensor.is_cuda.__get__, lambda found: found.is_meta),  # type: ignore[attr-defined]
            (tensor.is_cpu.__get__, lambda found: found.is_cpu),  # type: ignore[attr-defined]
            (tensor.data_ptr, lambda found: _ADDRESS + found.storage_offset() * found.element_size()),
            (tensor.get_device, lambda found: 0 if found.is_meta else -1),
            (tensor.cuda, lambda found: found.to(_META)),
            (tensor.record_stream, lambda _found: None),
        ]

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func is torch.device:
            return torch.device(*args, **(kwargs or {}))  # type: ignore[call-overload]
        if args and isinstance(args[0], torch.Tensor):
            for asked, answer in self._answers:
                if func == asked:
                    return answer(args[0])
        named = {key: _without_gpu(value) for key, value in (kwargs or {}).items() if key != "pin_memory"}
        return func(*map(_without_gpu, args), **named)


def _device(found: torch.Tensor) -> torch.device:
    return torch.device("cuda", 0) if found.is_meta else found.device


def _without_gpu(argument: object) -> object:
    is_gpu = isinstance(argument, torch.device) and argument.type == "cuda"
    return _META if is_gpu or (isinstance(argument, str) and argument.partition(":")[0] == "cuda") else argument


class _Stream:
    """Of the GPU: all that is asked of it is done."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *_args: object, **_options: object) -> None:
        """Be there."""

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, _stream: object) -> None:
        """Likewise."""

    def wait_event(self, _event: object) -> None:
        """Likewise."""

    def record_event(self, event: object = None) -> object:
        return event or _Event()


class _Event:
    def __init__(self, *_args: object, **_options: object) -> None:
        """Be there."""

    def record(self, _stream: object = None) -> None:
        """Happen."""

    def wait(self, _stream: object = None) -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Likewise."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: object) -> float:
        raise RuntimeError("only a CUDA device can tell times")


class _Graph:
    def __init__(self, *_args: object, **_options: object) -> None:
        """Be there."""

    def capture_begin(self, *_args: object, **_options: object) -> None:
        """Have what follows executed."""

    def capture_end(self) -> None:
        """End that."""

    def replay(self) -> None:
        """Do nothing: tensors have no contents."""

    def reset(self) -> None:
        """Likewise."""

    def pool(self) -> tuple[int, int]:
        return 0, 0


def _in_no_context(*_args: object, **_options: object) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _answer_for(capability: int) -> None:
    """Have `torch.cuda` describe a GPU of this architecture."""
    name, multiprocessors, l2_bytes, shared_bytes = _GPUS.get(capability, _GPUS[90])
    major, minor = divmod(capability, 10)
    properties = SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        multi_processor_count=multiprocessors,
        L2_cache_size=l2_bytes,
        warp_size=_WARP_THREADS,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048 if capability in {80, 90, 100} else 1536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=shared_bytes,
        shared_memory_per_multiprocessor=shared_bytes + 1024,
        total_memory=_MEMORY_BYTES,
    )
    answers: dict[str, Callable[..., object]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _device: None,
        "synchronize": lambda _device=None: None,
        "get_device_name": lambda _device=None: name,
        "get_device_capability": lambda _device=None: (major, minor),
        "get_device_properties": lambda _device=None: properties,
        "mem_get_info": lambda _device=None: (_MEMORY_BYTES, _MEMORY_BYTES),
        "empty_cache": lambda: None,
        "current_stream": _Stream,
        "default_stream": _Stream,
        "is_current_stream_capturing": lambda: False,
        "graph_pool_handle": lambda: (0, 0),
        "Stream": _Stream,
        "ExternalStream": _Stream,
        "Event": _Event,
        "CUDAGraph": _Graph,
        "device": _in_no_context,
        "device_of": _in_no_context,
        "stream": _in_no_context,
        "graph": _in_no_context,
    }
    for function, answer in answers.items():
        setattr(torch.cuda, function, answer)
