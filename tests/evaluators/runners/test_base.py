"""Shared memory in huge pages: the same bytes for both sides, mapped where huge pages begin, and no more than that."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluators.runners.base import HEAP_ENVIRONMENT, HUGE_BYTES, collapse, map_shared, rounded, unmap


@pytest.fixture
def fd() -> Iterator[int]:
    fd = os.memfd_create("ksearch-test", os.MFD_CLOEXEC)
    os.ftruncate(fd, 2 * HUGE_BYTES)
    yield fd
    os.close(fd)


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")


def test_what_is_much_smaller_than_a_huge_page_is_not_made_one() -> None:
    assert rounded(4096) == 4096
    assert rounded(HUGE_BYTES - 4096) == HUGE_BYTES
    assert rounded(HUGE_BYTES + 1) == 2 * HUGE_BYTES


def test_a_mapping_begins_where_a_huge_page_would_and_takes_no_more_than_its_size(fd: int) -> None:
    before = mapped_bytes()
    address = map_shared(fd, HUGE_BYTES + 4096, writable=True)
    assert address % HUGE_BYTES == 0
    assert mapped_bytes() - before <= HUGE_BYTES + 4096
    unmap(address, HUGE_BYTES + 4096)
    assert mapped_bytes() - before <= 0


def test_what_one_mapping_writes_the_others_read_whether_the_kernel_made_huge_pages_or_not(fd: int) -> None:
    collapse(fd, 2 * HUGE_BYTES)
    address = map_shared(fd, 2 * HUGE_BYTES, writable=True)
    ctypes.memset(address + HUGE_BYTES, 7, 3)
    with mmap.mmap(fd, 2 * HUGE_BYTES) as other:
        assert other[HUGE_BYTES : HUGE_BYTES + 4] == b"\7\7\7\0"
    unmap(address, 2 * HUGE_BYTES)


_MADV_REMOVE = 9


def huge_bytes(address: int) -> int:
    """Return how much of the mapping that begins at an address is mapped by huge pages."""
    for part in Path("/proc/self/smaps").read_text(encoding="ascii").split("VmFlags"):
        if f"{address:x}-" in part:
            return int(part.partition("ShmemPmdMapped:")[2].split()[0]) << 10
    return 0


def test_huge_pages_that_a_candidate_has_split_are_whole_for_the_next_one_and_hold_what_they_held(fd: int) -> None:
    size_bytes = 2 * HUGE_BYTES
    if not collapse(fd, size_bytes):
        pytest.skip("the kernel gives no huge pages on request")
    address = map_shared(fd, size_bytes, writable=True)
    assert huge_bytes(address) == size_bytes
    ctypes.memset(address, 7, size_bytes)
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(address), 4096, _MADV_REMOVE) == 0
    unmap(address, size_bytes)
    again = map_shared(fd, size_bytes, writable=True)
    assert huge_bytes(again) < size_bytes
    unmap(again, size_bytes)
    assert collapse(fd, size_bytes, is_new=False)
    restored = map_shared(fd, size_bytes, writable=True)
    assert huge_bytes(restored) == size_bytes
    assert ctypes.string_at(restored + 4095, 2) == b"\0\7"
    unmap(restored, size_bytes)


def test_a_private_mapping_can_be_written_to_and_nobody_else_sees_it(fd: int) -> None:
    address = map_shared(fd, 4096, writable=False, private=True)
    ctypes.memset(address, 7, 1)
    with mmap.mmap(fd, 4096) as other:
        assert other[0] == 0
    unmap(address, 4096)


def test_a_file_that_cannot_be_mapped_is_an_error_with_its_reason() -> None:
    with pytest.raises(OSError, match="cannot map memory"):
        map_shared(-1, 4096, writable=True)


def test_malloc_is_told_at_the_start_of_a_program() -> None:
    assert HEAP_ENVIRONMENT == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
