"""The CUDA driver by ctypes, as far as judge and runners need it. Stdlib only: a library's runner starts without torch.

- `Context()`: the primary context of the first visible GPU, current in the thread that made it
- `SharedMemory(context, size_bytes)`, `attach(context, fd, size_bytes) -> int`: memory that processes share
- `SpanClock(context, stream)`: time between two points of a stream, by the GPU's clock
- `Hold(context)`: keeps the GPU busy for a time

Memory is shared by descriptors of the driver's virtual memory management, not by legacy IPC handles, which do not work
across process namespaces (CUDA driver API, "Virtual Memory Management"). Every failure is a `DriverError`.
"""

from __future__ import annotations

import ctypes
import os

_LIBRARY = "libcuda.so.1"
_PINNED, _POSIX_DESCRIPTOR, _ON_DEVICE, _READ_WRITE = 1, 1, 1, 3
_MINIMUM_GRANULARITY = 0
_PERSISTING_L2_LIMIT = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_L2_BYTES = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
_NOT_SUPPORTED = 801
_NO_COMPILER = 221  # CUDA_ERROR_JIT_COMPILER_NOT_FOUND
_HOLD = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry hold(.param .u64 span_ns, .param .u64 longest_gap_ns)
{
    .reg .pred %before;
    .reg .u64 %place, %end, %last, %now, %gap, %longest;
    ld.param.u64 %end, [span_ns];
    ld.param.u64 %place, [longest_gap_ns];
    cvta.to.global.u64 %place, %place;
    mov.u64 %longest, 0;
    mov.u64 %last, %globaltimer;
    add.u64 %end, %end, %last;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %gap, %now, %last;
    max.s64 %longest, %longest, %gap;
    mov.u64 %last, %now;
    setp.lt.u64 %before, %now, %end;
    @%before bra again;
    st.global.u64 [%place], %longest;
    ret;
}
"""
"""One thread that waits by the GPU's global timer, which counts ns at any clock rate (PTX ISA, `%globaltimer`).

It records the longest time between two looks: while another process has its turn, this one does not look.
"""

Handle = ctypes.c_ulonglong
Pointer = ctypes.c_void_p


class DriverError(Exception):
    """A call of the driver failed."""

    def __init__(self, what: str, code: int, name: str) -> None:
        super().__init__(f"{what}: {name} ({code})")
        self.code = code


class _Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationFlags(ctypes.Structure):
    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", _AllocationFlags),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Context:
    """The primary context of the first visible GPU, which torch in the same process uses, too."""

    def __init__(self) -> None:
        """Initialise the driver (some 0.3 s).

        Raises:
            DriverError: there is no usable GPU.
        """
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise DriverError(str(error), 0, "no driver") from error
        device, context = ctypes.c_int(), Pointer()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        l2_bytes = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(l2_bytes), _L2_BYTES, device)
        self.l2_bytes = l2_bytes.value
        self._device = device

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver.

        Raises:
            DriverError: it returned something else than success.
        """
        code = int(self._library[name](*arguments))
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(name, code, (text.value or b"unknown").decode())

    def synchronize(self) -> None:
        """Wait for all work of this process on all streams."""
        self.call("cuCtxSynchronize")

    def make_stream(self) -> int:
        """Return a stream that the default stream waits for, and that waits for it."""
        stream = Pointer()
        self.call("cuStreamCreate", ctypes.byref(stream), 0)
        return stream.value or 0

    def keep_freed_memory(self) -> None:
        """Have stream-ordered allocations (`cudaMallocAsync`) find the memory that earlier calls gave back.

        By default it is handed to the system whenever a process waits for the GPU: behind a call's last event, in no
        time that the events see.
        """
        pool, everything = Pointer(), ctypes.c_uint64(2**64 - 1)
        try:
            self.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), self._device)
            self.call("cuMemPoolSetAttribute", pool, _RELEASE_THRESHOLD, ctypes.byref(everything))
        except DriverError as error:
            if error.code != _NOT_SUPPORTED:  # a GPU without such pools
                raise

    def forget_persisting_l2(self) -> None:
        """Let no line of the L2 cache survive a flush because a process asked for it."""
        try:
            self.call("cuCtxSetLimit", _PERSISTING_L2_LIMIT, ctypes.c_size_t(0))
            self.call("cuCtxResetPersistingL2Cache")
        except DriverError as error:
            if error.code != _NOT_SUPPORTED:  # a GPU without such lines
                raise


class SharedMemory:
    """Memory of the GPU that other processes can map by a descriptor."""

    def __init__(self, context: Context, size_bytes: int) -> None:
        """Allocate.

        Raises:
            DriverError: there is less memory, or it cannot be shared.
        """
        properties = _AllocationProperties(type=_PINNED, handle_types=_POSIX_DESCRIPTOR, location=_Location(_ON_DEVICE))
        granule = ctypes.c_size_t()
        context.call(
            "cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(properties), _MINIMUM_GRANULARITY
        )
        self.size_bytes = -(-size_bytes // granule.value) * granule.value
        handle, descriptor = Handle(), ctypes.c_int(-1)
        context.call(
            "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(self.size_bytes), ctypes.byref(properties), Handle(0)
        )
        context.call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, _POSIX_DESCRIPTOR, Handle(0))
        self.fd = descriptor.value
        os.set_inheritable(self.fd, False)
        self.address = _map(context, handle, self.size_bytes)


def attach(context: Context, fd: int, size_bytes: int) -> int:
    """Map memory that another process shares. Returns its address here.

    Args:
        context: of this process.
        fd: the descriptor, which may be closed afterwards.
        size_bytes: as the owner's `SharedMemory` has it.

    Raises:
        DriverError: it cannot be mapped.
    """
    handle = Handle()
    context.call("cuMemImportFromShareableHandle", ctypes.byref(handle), Pointer(fd), _POSIX_DESCRIPTOR)
    return _map(context, handle, size_bytes)


def _map(context: Context, handle: Handle, size_bytes: int) -> int:
    """Map memory for reading and writing; it lives until the process ends."""
    address, size = Handle(), ctypes.c_size_t(size_bytes)
    context.call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), Handle(0), Handle(0))
    context.call("cuMemMap", address, size, ctypes.c_size_t(0), handle, Handle(0))
    access = _Access(_Location(_ON_DEVICE), _READ_WRITE)
    context.call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
    context.call("cuMemRelease", handle)
    return address.value


class SpanClock:
    """Two events of a stream, and the time between them by the GPU's clock (resolution: half a microsecond)."""

    def __init__(self, context: Context, stream: int) -> None:
        self._context, self._stream = context, Pointer(stream)
        self._begin, self._end = Pointer(), Pointer()
        for event in (self._begin, self._end):
            context.call("cuEventCreate", ctypes.byref(event), 0)

    def begin(self) -> None:
        """Queue the first point."""
        self._context.call("cuEventRecord", self._begin, self._stream)

    def end(self) -> None:
        """Queue the second point."""
        self._context.call("cuEventRecord", self._end, self._stream)

    def elapsed_ns(self) -> int:
        """Return the time between both; they must have been reached."""
        milliseconds = ctypes.c_float()
        self._context.call("cuEventElapsedTime", ctypes.byref(milliseconds), self._begin, self._end)
        return round(milliseconds.value * 1e6)


class Hold:
    """Keeps the GPU for this process, for a given time, with one thread that waits."""

    def __init__(self, context: Context) -> None:
        """Have the driver compile what waits.

        Raises:
            DriverError: it cannot.
        """
        self._context, self._function, module = context, Pointer(), Pointer()
        try:
            context.call("cuModuleLoadData", ctypes.byref(module), _HOLD)
        except DriverError as error:
            if error.code != _NO_COMPILER:
                raise
            missing = "libnvidia-ptxjitcompiler.so.1 is not there, which belongs to the driver: beside libcuda.so.1"
            raise DriverError(missing, error.code, "no compiler of PTX") from error
        context.call("cuModuleGetFunction", ctypes.byref(self._function), module, b"hold")
        self._longest_gap = Handle()
        context.call("cuMemAlloc_v2", ctypes.byref(self._longest_gap), ctypes.c_size_t(ctypes.sizeof(ctypes.c_uint64)))

    def begin(self, span_ns: int) -> None:
        """Queue a wait of this many ns on the default stream."""
        span = ctypes.c_uint64(span_ns)
        parameters = (Pointer * 2)(ctypes.addressof(span), ctypes.addressof(self._longest_gap))
        self._context.call("cuLaunchKernel", self._function, 1, 1, 1, 1, 1, 1, 0, Pointer(), parameters, Pointer())

    def longest_gap_ns(self) -> int:
        """Wait for what was queued. Returns for how long at most the last wait was interrupted."""
        found = ctypes.c_uint64()
        self._context.call(
            "cuMemcpyDtoH_v2", ctypes.byref(found), self._longest_gap, ctypes.c_size_t(ctypes.sizeof(found))
        )
        return found.value
