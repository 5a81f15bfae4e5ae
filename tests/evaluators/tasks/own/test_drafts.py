"""What a drafted reference may hold: a computation on tensors, and nothing else."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from evaluators.tasks.own.drafts import ATTRIBUTES, BUILTINS, MODULES, vet_reference

HONEST = '''\
"""Attention, and more."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.linalg import vector_norm

EPS: float = 1e-6


def attended(x: torch.Tensor, w: torch.Tensor | None, *, k: int = 3) -> tuple[torch.Tensor, ...]:
    """Do a little of everything."""
    y = F.gelu(torch.bmm(x, w)) * math.sqrt(k)
    y, place = torch.topk(y, k, dim=-1)
    for i in range(3):
        y = y + nn.functional.silu(y.to(torch.float32)) / (i + 1)
    y.masked_fill_(place == 0, float("-inf"))
    parts = [one.sum(dim=0) for one in y.unbind(0)]
    size = vector_norm(y).item()
    if x.shape[0] > 2:
        raise ValueError(f"not {size}")
    parts[0][:2] = torch.special.expit(parts[0][:2])
    return torch.stack(parts), y.softmax(-1).to(x.dtype)
'''

HOSTILE = {
    "import os": "'os' cannot be imported",
    "import torch, os": "'os' cannot be imported",
    "import os.path as torch": "'os.path' cannot be imported",
    "import torch.utils.cpp_extension": "'torch.utils.cpp_extension' cannot",
    "from os import system": "'os.system' cannot",
    "from torch import os": "'torch.os' cannot",
    "from torch import *": "'torch.*' cannot",
    "from torch.nn.functional import importlib as i": "importlib' cannot",
    "from . import neighbour": "'..neighbour' cannot",
    "def f(x):\n    import os": "import at the top",
    "import torch\nprint(torch)": "at the top of the file stand",
    "import torch\nX = torch.load('weights')": "'torch.load' is none of the operations",
    "import torch\ndef f(x): torch.save(x, 'there')": "'torch.save'",
    "import torch\ndef f(x): torch.ops.load_library('a.so')": "'torch.ops'",
    "import torch\ndef f(x): torch.hub.load('a', 'b')": "'torch.hub'",
    "import torch\ndef f(x): return torch.os.system('ls')": "'torch.os'",
    "import torch\ndef f(x): return torch.from_file('a')": "'torch.from_file'",
    "import torch.nn.functional as F\ndef f(x): return F.importlib": "'torch.nn.functional.importlib'",
    "from torch import nn\ndef f(x): return nn.Module": "'torch.nn.Module'",
    "import torch\nT = torch": "the module 'torch' is used as a value",
    "import torch\ndef f(x): torch.equal = f": "'.equal' is assigned to",
    "import torch\ndef f(x):\n    for torch.equal in [f]:\n        pass": "'.equal' is assigned to",
    "def f(x): x.shape += 1": "'.shape' is assigned to",
    "def f(x): return x.__class__": "'.__class__' is none of the methods",
    "def f(x): return f'{x.__class__}'": "'.__class__' is none of the methods",
    "def f(x): return '{0.__class__}'.format(x)": "'.format' is none of the methods",
    "def f(x): return x.numpy().tofile('there')": "'.tofile' is none of the methods",
    "def f(x): return x.untyped_storage()": "'.untyped_storage' is none",
    "def f(x): return x.data_ptr()": "'.data_ptr' is none",
    "def f(x): return getattr(x, 'y')": "'getattr' is not defined",
    "def f(x): return __import__('os')": "'__import__' is not defined",
    "def f(x): return eval('1')": "'eval' is not defined",
    "def f(x: open('there')): return x": "'open' is not defined",
    "def f(x, open=open): return open('there')": "'open' is a name of Python's own",
    "def f(x):\n    exec = exec": "'exec' is a name of Python's own",
    "def f(x, *, __builtins__=1): return x": "'__builtins__' is a name of Python's own",
    "import math\ndef f(x, math): return x": "'math' is a name of Python's own or of an import",
    "@print\ndef f(x): return x": "leave out decorators",
    "class A: pass": "leave out 'class'",
    "def f(x):\n    while True:\n        pass": "leave out 'while'",
    "def f(x):\n    with x: pass": "leave out 'with'",
    "def f(x):\n    try: return x\n    except: pass": "leave out 'try'",
    "def f(x):\n    global y\n    y = 1": "leave out 'global'",
    "def f(x):\n    del x": "leave out 'delete'",
    "async def f(x): return x": "leave out 'asyncfunctiondef'",
    "def f(x): return lambda: x": "leave out 'lambda'",
    "def f(x): return (one for one in x).gi_frame": "leave out 'a generator'",
    "def f(x): yield x": "leave out 'yield'",
    "def f(x:": "line 1: it is no Python",
    "x = '\0'": "it is no Python",
    "x = " + "(" * 500 + ")" * 500: "it is",
    "x = 1\n" * 6000: "longer than 32 KiB",
}


def test_an_honest_reference_is_left_alone() -> None:
    assert vet_reference(HONEST) == ()


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:60])
def test_what_reaches_past_tensors_is_named_with_its_line(text: str) -> None:
    complaints = vet_reference(text)
    assert any(HOSTILE[text] in complaint for complaint in complaints), complaints


def test_complaints_come_in_the_order_of_lines_and_not_without_end() -> None:
    complaints = vet_reference("\n".join(f"import evil{number}" for number in range(40)))
    assert [complaint.partition(":")[0] for complaint in complaints] == [f"line {number}" for number in range(1, 13)]


@pytest.mark.parametrize("module", MODULES)
def test_every_word_is_there_and_leads_nowhere(module: str) -> None:
    there = importlib.import_module(module)
    for word in MODULES[module]:
        assert not isinstance(getattr(there, word), ModuleType), word


def test_no_word_is_one_of_pythons_insides() -> None:
    words = ATTRIBUTES | BUILTINS
    assert not [word for word in words if word.startswith("_")]
    reaching = {
        "eval",
        "exec",
        "open",
        "getattr",
        "vars",
        "numpy",
        "tofile",
        "storage",
        "load",
        "save",
        "compile",
        "format",
    }
    assert not words & reaching
