"""Asks NVIDIA's driver about one GPU and prints a JSON object: a stdlib-only script for `python -I -S`.

Its argument is the GPU's number as the driver counts (CUDA_VISIBLE_DEVICES counts). A process that has called `cuInit`
can no longer fork children that use the GPU, so only short-lived processes call it. No context is made: a GPU that is
being measured on is not disturbed.

Exit codes: 0, 3 (no driver), 4 (the driver refused; its words on standard error), 5 (no such GPU).
"""

from __future__ import annotations

import ctypes
import json
import sys

NO_DRIVER, REFUSED, NO_SUCH_GPU = 3, 4, 5

_LIBRARY = "libcuda.so.1"
_INVALID_DEVICE, _NO_DEVICE = 101, 100
_NAME_BYTES, _UUID_BYTES = 256, 16
_ATTRIBUTES = {
    "sm_clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "capability_major": 75,
    "capability_minor": 76,
    "shared_bytes_per_block": 97,
}
"""Numbers of CUdevice_attribute in cuda.h."""


class RefusedError(Exception):
    """The driver answered with an error."""

    def __init__(self, function: str, status: int, text: str) -> None:
        super().__init__(f"{function} failed with {status}{': ' if text else ''}{text}")
        self.status = status


class Driver:
    """The driver's library: every call either succeeds or raises `RefusedError`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_LIBRARY)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the driver by its name."""
        status = self._library[function](*arguments)
        if status != 0:
            raise RefusedError(function, status, self._text(status))

    def _text(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")


def read_facts(driver: Driver, index: int) -> dict[str, object]:
    """Return the facts of one GPU.

    Raises:
        RefusedError: the driver does not work, or has no such GPU.
    """
    driver.call("cuInit", 0)
    device, version, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name, uuid = ctypes.create_string_buffer(_NAME_BYTES), (ctypes.c_ubyte * _UUID_BYTES)()
    driver.call("cuDeviceGet", ctypes.byref(device), index)
    driver.call("cuDeviceGetName", name, _NAME_BYTES, device)
    driver.call("cuDeviceGetUuid_v2", ctypes.byref(uuid), device)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    driver.call("cuDriverGetVersion", ctypes.byref(version))
    facts: dict[str, object] = {
        "name": name.value.decode(errors="replace"),
        "uuid": bytes(uuid).hex(),
        "memory_bytes": memory.value,
        "cuda_version": version.value,
    }
    value = ctypes.c_int()
    for key, attribute in _ATTRIBUTES.items():
        driver.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        facts[key] = value.value
    return facts


def main() -> int:
    """Print the facts of the GPU that the first argument numbers."""
    try:
        driver = Driver()
    except OSError as error:
        return _end(NO_DRIVER, str(error))
    try:
        facts = read_facts(driver, int(sys.argv[1]))
    except RefusedError as error:
        return _end(NO_SUCH_GPU if error.status in {_INVALID_DEVICE, _NO_DEVICE} else REFUSED, str(error))
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _end(code: int, text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
