"""The heap of a process that computes with eager operators. Stdlib only."""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Have malloc reuse freed memory instead of giving it back to the kernel.

    By default it depends on the heap's chance layout whether each result of an eager operation costs thousands of page
    faults (seen: 1.0 or 6.6 ms for the same call). Reference and candidates get the good case, always.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)
    libc.mallopt(_M_MMAP_MAX, 0)


HUGE_BYTES = 2 << 20
HEAP_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has glibc's malloc ask for huge pages (2.35 and later; others take no notice). It is read when a program starts."""

_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE, _MAP_POPULATE = (
    0x01,
    0x02,
    0x10,
    0x20,
    0x4000,
    0x8000,
)
_MADV_COLLAPSE = 25
"""Linux 6.1."""


def rounded(size_bytes: int) -> int:
    """Return a size that huge pages fill, for what is not much smaller than one."""
    return size_bytes if size_bytes < HUGE_BYTES // 2 else -(-size_bytes // HUGE_BYTES) * HUGE_BYTES


def map_shared(fd: int, size_bytes: int, *, writable: bool, private: bool = False) -> int:
    """Map a file where huge pages would begin. Returns the address; the memory is all there."""
    around = size_bytes + HUGE_BYTES
    begin = _map(None, around, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE, -1)
    address = -(-begin // HUGE_BYTES) * HUGE_BYTES
    protection = _PROT_READ | (_PROT_WRITE if writable or private else 0)
    flags = (_MAP_PRIVATE if private else _MAP_SHARED) | _MAP_FIXED | _MAP_POPULATE
    _map(address, size_bytes, protection, flags, fd)
    end = -(-(address + size_bytes) // os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PAGE_SIZE")
    unmap(begin, address - begin)
    unmap(end, begin + around - end)
    return address


def unmap(address: int, size_bytes: int) -> None:
    """Give up a mapping, or a part of one."""
    if size_bytes > 0:
        _libc().munmap(address, size_bytes)


def collapse(fd: int, size_bytes: int, *, is_new: bool = True) -> bool:
    """Have a file in memory consist of huge pages. Returns whether the kernel did that; it need not.

    Args:
        fd: the file's.
        size_bytes: all of it.
        is_new: nobody has written to it yet; else what lies there stays, and what has huge pages takes no time.
    """
    address = map_shared(fd, size_bytes, writable=True)
    if is_new:
        # First written to, then collapsed: holes have no pages.
        ctypes.memset(address, 0, size_bytes)
    is_huge: bool = _libc().madvise(address, size_bytes, _MADV_COLLAPSE) == 0
    unmap(address, size_bytes)
    return is_huge


def _map(address: int | None, size_bytes: int, protection: int, flags: int, fd: int) -> int:
    found = _libc().mmap(address, size_bytes, protection, flags, fd, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot map memory")
    return int(found)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc
