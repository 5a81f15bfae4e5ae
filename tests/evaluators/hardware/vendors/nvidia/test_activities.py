"""What CUPTI records is read: by a stand-in that hands out records as the real one lays them out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evaluators.hardware.vendors.nvidia.activities import Recorder, RecorderError, find_cupti
from evaluators.languages.cpp.toolchain import find_compiler

STAND_IN = r"""
#include <cstddef>
#include <cstdint>
#include <cstring>
typedef void (*Lend)(uint8_t**, size_t*, size_t*);
typedef void (*Take)(void*, uint32_t, uint8_t*, size_t, size_t);
static Lend lend;
static Take take;
static int enabled = 0;
static uint64_t now = 0;
static const size_t SIZE = 160;
static const char* NAMES[] = {"_Z7doubledPKfPfl", "plain"};

static void put(uint8_t* at, size_t offset, const void* value, size_t size) { std::memcpy(at + offset, value, size); }
template <typename T> static void put(uint8_t* at, size_t offset, T value) { put(at, offset, &value, sizeof(T)); }

static void record(uint8_t* at, uint32_t kind, uint64_t begun, uint64_t ended) {
    std::memset(at, 0, SIZE);
    put<uint32_t>(at, 0, kind);
    put<uint64_t>(at, 16, begun);
    put<uint64_t>(at, 24, ended);
}

static void kernel(uint8_t* at, const char* name, uint64_t begun, uint64_t ended) {
    record(at, 10, begun, ended);
    put<uint16_t>(at, 6, 42);
    const int32_t sizes[] = {64, 2, 1, 128, 4, 1};
    put(at, 52, sizes, sizeof sizes);
    put<int32_t>(at, 76, 1000);
    put<int32_t>(at, 80, 24);
    put<uint32_t>(at, 84, 8);
    put<const char*>(at, 104, name);
}

extern "C" {
int cuptiActivityRegisterCallbacks(Lend l, Take t) { lend = l; take = t; return REGISTERS; }
int cuptiActivityEnable(int kind) { enabled |= 1 << kind; return 0; }
int cuptiGetTimestamp(uint64_t* time) { *time = now += 1000; return 0; }
int cuptiActivityFlushAll(uint32_t) {
    if (enabled != (1 << 1 | 1 << 2 | 1 << 10)) return 99;
    uint8_t* buffer;
    size_t size, most;
    lend(&buffer, &size, &most);
    if (size < 5 * SIZE || reinterpret_cast<uintptr_t>(buffer) % 8) return 98;
    kernel(buffer, NAMES[1], now + 300, now + 400);
    kernel(buffer + SIZE, NAMES[0], now + 100, now + 200);
    record(buffer + 2 * SIZE, 1, now + 10, now + 20);
    record(buffer + 3 * SIZE, 7, now + 11, now + 12);
    kernel(buffer + 4 * SIZE, "before", now - 500, now - 400);
    take(nullptr, 0, buffer, size, 5 * SIZE);
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** at) {
    *at = *at ? *at + SIZE : buffer;
    return *at < buffer + valid ? 0 : 12;
}
}
"""


def stand_in(folder: Path, *, registers: int = 0) -> str:
    library, source = folder / "libcupti.so.13", folder / "cupti.cpp"
    source.write_text(STAND_IN.replace("REGISTERS", str(registers)))
    subprocess.run([find_compiler(), "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def test_kernels_and_copies_are_told_in_their_order_each_time(tmp_path: Path) -> None:
    recorder = Recorder(stand_in(tmp_path))
    for now in (1000, 2000):
        recorder.begin()
        copy, own, plain = recorder.end()
        assert (copy.name, copy.begun_ns, copy.ended_ns, copy.block) == ("(copy)", now + 10, now + 20, (0, 0, 0))
        assert (own.name, own.told) == ("_Z7doubledPKfPfl", "doubled(float const*, float*, long)")
        assert (own.begun_ns, own.ended_ns) == (now + 100, now + 200)
        assert (own.grid, own.block, own.registers) == ((64, 2, 1), (128, 4, 1), 42)
        assert (own.shared_bytes, own.local_bytes) == (1024, 8)
        assert plain.told == "plain"


def test_a_library_that_does_not_record_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecorderError, match="cuptiActivityRegisterCallbacks fails with error 15"):
        Recorder(stand_in(tmp_path, registers=15))
    with pytest.raises(RecorderError, match="cannot open shared object"):
        Recorder(str(tmp_path / "missing.so"))


def test_the_library_is_found_beside_the_packages(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages" / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.13").touch()
    assert find_cupti([str(tmp_path / "site-packages")]) == str(folder / "libcupti.so.13")
