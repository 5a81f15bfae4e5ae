"""What texts look like: what is flagged, what is forbidden, and honest texts that must not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.build.policy.gate import Triage, examine, triage
from evaluators.build.policy.python_text import reach_past_torch
from messages.base import Language
from messages.tasks import Candidate, SourceFile, TaskRules
from messages.verdicts import Rejected
from tests.evaluators.words import cpp


def python(text: str) -> Triage:
    return triage(Candidate(language="triton", entry_point="f", files=(SourceFile(path="main.py", text=text),)))


HONEST = {
    "import with a way out": "try:\n    import triton.language.extra as extra\nexcept ImportError:\n    extra = None\n",
    "cache by shape": "cache = {}\ndef f(x):\n    key = (x.shape, x.dtype)\n    cache[key] = cache.get(key, 1)\n",
    "autotune": "import triton\n@triton.autotune(configs=[triton.Config({'B': 64})], key=['n'])\n@triton.jit\n"
    "def k(n, B):\n    pass\n",
    "context manager": "import contextlib\n@contextlib.contextmanager\ndef quiet():\n    yield\n",
    "thread pool": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n",
    "settings": "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\ntorch.manual_seed(0)\n"
    "torch.set_num_threads(2)\n",
    "compiler settings": "import torch._inductor.config as config\nimport torch\nconfig.max_autotune = True\n"
    "torch._inductor.config.cpp.threads = 2\n",
    "own attributes": "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.torch = 1\n        self.time = 2\n"
    "        self.weight.data = torch.ones(2)\n",
    "own names": "time = {}\ntime['a'] = 1\nclass A: pass\nA.b = 1\nsys = A()\nsys.modules = 3\n",
    "custom operator": "import torch\n@torch.library.custom_op('mine::op', mutates_args=())\n"
    "def op(x: torch.Tensor) -> torch.Tensor:\n    return x\nlib = torch.library.Library('mine', 'DEF')\n",
    "inspection": "import inspect\ndef f(g):\n    return inspect.signature(g)\n",
    "inline code": "from torch.utils.cpp_extension import load_inline\nm = load_inline('m', cpp_sources='')\n",
    "graph": "import torch\ng = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    pass\n",
    "in words only": '"""time.perf_counter = None is what this does not do."""\n# sys.modules["torch"] = 1\n',
    "no Python": "def f(:\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_texts_are_not_forbidden(name: str) -> None:
    assert python(HONEST[name]).forbidden == ()


FORBIDDEN = {
    "timer": ("import time\ntime.perf_counter = lambda: 0.0\n", "replaced: time.perf_counter"),
    "timer under another name": ("import time as t\nt.perf_counter_ns = None\n", "replaced: time.perf_counter_ns"),
    "event": (
        "import torch\ntorch.cuda.Event.elapsed_time = lambda s, e: 1e-3\n",
        "replaced: torch.cuda.Event.elapsed_time",
    ),
    "comparison": ("import torch\ntorch.allclose, x = None, 1\n", "replaced: torch.allclose"),
    "from import": (
        "from torch import testing\ntesting.assert_close = print\n",
        "replaced: torch.testing.assert_close",
    ),
    "setattr": ("import torch\nsetattr(torch, 'allclose', None)\n", "call of setattr"),
    "module table": ("import sys\nsys.modules['torch'] = None\n", "replaced: sys.modules"),
    "module deleted": ("import sys\ndel sys.modules['torch']\n", "replaced: sys.modules"),
    "registration": ("import torch\nl = torch.library.Library('aten', 'IMPL')\n", "a registration for aten"),
    "registration by decorator": (
        "import torch\n@torch.library.impl('aten::mm', 'CPU')\ndef mm(a, b): ...\n",
        "a registration for aten",
    ),
    "dispatcher": ("import torch\nd = torch._C._dispatch_library\n", "operators replaced: _dispatch_library"),
    "kernel kept": ("from torch.library import get_kernel\n", "operators replaced: get_kernel"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_no_honest_kernel_holds_is_forbidden_and_named(name: str) -> None:
    text, said = FORBIDDEN[name]
    (found,) = python(text).forbidden
    assert said in found
    assert "(main.py:2)" in found or "(main.py:1)" in found


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("exec('1')", "call of exec (main.py:1)"),
        ("import ctypes", "native code: import of ctypes (main.py:1)"),
        ("import threading", "thread: import of threading (main.py:1)"),
        ("import subprocess", "process: import of subprocess (main.py:1)"),
        ("import socket", "network: import of socket (main.py:1)"),
        ("import sys\nsys._getframe(1)", "frames: _getframe (main.py:2)"),
        ("import gc\ngc.get_objects()", "interpreter: get_objects (main.py:2)"),
        ("def f(x, y):\n    return x.data_ptr() == y", "comparison of pointers (main.py:2)"),
        ("import torch\ns = torch.cuda.Stream()", "stream: Stream (main.py:2)"),
        ("open('/proc/self/maps')", "path of the system (main.py:1)"),
        ("import numpy as np", "library: import of numpy (main.py:1)"),
    ],
)
def test_what_a_person_may_want_to_look_at_is_flagged_with_its_line(text: str, flag: str) -> None:
    found = python(text)
    assert flag in found.flags
    assert found.forbidden == ()


def test_native_texts_are_flagged_by_tokens_and_never_forbidden() -> None:
    found = triage(
        cpp(
            '// fork() is only talked about\nconst char* s = "system()";\nint f() { return fork(); }\n'
            '#define PASTE(a, b) a##b\nvoid g() { asm volatile("syscall"); }\n'
            "__attribute__((constructor)) void early() {}\n"
        )
    )
    assert found.flags == (
        "process: fork (main.cpp:3)",
        "token pasting (main.cpp:4)",
        "system call in assembler (main.cpp:5)",
        "code at load (main.cpp:6)",
    )
    assert found.forbidden == ()


def test_a_construct_is_flagged_once_per_file_and_flags_are_bounded() -> None:
    assert python("import threading\n" * 100).flags == ("thread: import of threading (main.py:1)",)
    many = "\n".join(f"import torch._C.x{index}" for index in range(100))
    assert len(python(many).flags) == 20
    assert python("#" * (1 << 20)).flags == ("long: its text was not looked at",)


@pytest.mark.parametrize(
    "text",
    [
        "import ctypes\n",
        "from ctypes import CDLL\n",
        "import torch\nc = torch.ctypes\n",
        "import importlib\nc = importlib.import_module('ctypes')\n",
        "import torch\ntorch.ops.load_library('/lib/libtorch_cpu.so')\n",
        "from cffi import FFI\n",
    ],
)
def test_a_program_that_reaches_for_shared_libraries_calls_a_library(text: str) -> None:
    languages: tuple[Language, ...] = ("triton", "python")
    for language in languages:
        candidate = Candidate(
            language=language, entry_point="f", files=(SourceFile(path="main.py", text=f"pass\n{text}"),)
        )
        rejected = examine(candidate, Path("main.py"), TaskRules()).rejected
        assert isinstance(rejected, Rejected)
        assert rejected.rule == "library call"
        assert "(main.py:2)" in rejected.reason or "(main.py:3)" in rejected.reason
        assert examine(candidate, Path("main.py"), TaskRules(library_calls="allow")).rejected is None


@pytest.mark.parametrize("name", HONEST)
def test_honest_texts_reach_for_no_shared_library(name: str) -> None:
    assert reach_past_torch(HONEST[name]) is None
