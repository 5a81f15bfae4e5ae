"""KernelBench's candidate files, in and out: a Python module that defines `ModelNew`.

Out: the upstream's harness makes `Model` and `ModelNew` after setting the same seed, and relies on equal weights. A
kernel that is a function of tensors is wrapped in a `ModelNew` that makes the reference's own `Model` for its weights,
so that they are equal whatever the order of draws. Nothing that the upstream's text check refuses (`try`, `pass`) is
added.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from messages.base import ConfigError
from messages.tasks import Candidate, TaskSpec, TensorSpec

_UPSTREAM = re.compile(r"level_(?P<level>\d+)_problem_(?P<id>\d+)_sample_(?P<sample>\d+)_kernel\.(py|cu|cpp)")
_NUMBERED = re.compile(r"(?P<id>\d+)(_.*)?\.(py|cu|cpp)")


def find_candidate(folder: Path, level: int, problem_id: int, *, sample: int = 0) -> Path | None:
    """Return a folder's candidate for a problem; null if there is none.

    Args:
        folder: folder of files named as by the upstream's scripts, `level_1_problem_23_sample_0_kernel.py`, or by the
            problem's number: `23.py`, `23_anything.cu`.
        level: level of the problem.
        problem_id: number of the problem.
        sample: number of the generation, if there are several.

    Raises:
        ConfigError: the folder cannot be read, or has several candidates for it.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot read the candidates' folder {str(folder)!r}: {error.strerror}") from error
    upstream = [
        name
        for name in names
        if (found := _UPSTREAM.fullmatch(name))
        and (int(found["level"]), int(found["id"]), int(found["sample"])) == (level, problem_id, sample)
    ]
    own = [name for name in names if (found := _NUMBERED.fullmatch(name)) and int(found["id"]) == problem_id]
    fitting = upstream or own
    if len(fitting) > 1:
        raise ConfigError(f"{str(folder)!r} holds several candidates for problem {problem_id}: {', '.join(fitting)}")
    return folder / fitting[0] if fitting else None


def write_submission(candidate: Candidate, task: TaskSpec, tensors: Sequence[TensorSpec]) -> str:
    """Return a candidate as one file that the upstream's harness accepts.

    Args:
        candidate: a candidate of one file.
        task: its task.
        tensors: the task's tensors: inputs, then state, then outputs.

    Raises:
        ConfigError: the harness does not support its form.
    """
    if len(candidate.files) > 1:
        raise ConfigError(f"this kernel has {len(candidate.files)} files, and a KernelBench submission is one")
    text = candidate.files[0].text.rstrip("\n")
    if candidate.language == "python":
        return f"{text}\n"
    if candidate.language == "cpp":
        raise ConfigError("KernelBench's harness calls candidates on a GPU, and this kernel is C++ for a CPU")
    if candidate.language == "cuda" and "TVM_FFI_DLL_EXPORT" in text:
        raise ConfigError("this kernel exports itself through tvm-ffi, which KernelBench's harness does not load")
    outputs = [tensor for tensor in tensors if tensor.role == "output"]
    made = "".join(
        f"            torch.empty({one.shape}, dtype=torch.{one.dtype}, device=device),\n" for one in outputs
    )
    returned = "outputs[0]" if len(outputs) == 1 else "tuple(outputs)"
    wrapper = _WRAPPER.format(
        reference=_literal(_without_words(task.text)), outputs=made, returned=returned, call=_CALLS[candidate.language]
    )
    head = text if candidate.language == "triton" else _CUDA.format(source=_literal(text), glue=_literal(_GLUE))
    return f"{head}\n\n\n{wrapper}"


def _without_words(text: str) -> str:
    """Return the code of a problem's `Model` without comments, docstrings and the functions for its inputs."""
    tree = ast.parse(text)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Expr(ast.Constant(...))]
    return ast.unparse(ast.fix_missing_locations(tree))


def _literal(text: str) -> str:
    """Return a text as a Python literal, with a line per line if that is readable."""
    if '"""' in text or "\\" in text or text.endswith('"'):
        return repr(text)
    return f'"""\n{text}\n"""'


_WRAPPER = """import torch

REFERENCE = {reference}


class ModelNew(torch.nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        names = {{"__name__": "reference"}}
        exec(compile(REFERENCE, "reference", "exec"), names)
        self.reference = names["Model"](*arguments)

    def forward(self, *inputs):
        device = inputs[0].device
        plain = [
            value
            for module in self.reference.modules()
            for value in vars(module).values()
            if isinstance(value, torch.Tensor)
        ]
        state = [*self.reference.parameters(), *self.reference.buffers(), *plain]
        tensors = [tensor.detach().contiguous() for tensor in (*inputs, *state)]
        outputs = [
{outputs}        ]
        {call}
        return {returned}
"""

_CALLS = {"triton": "ksearch_run(*tensors, *outputs)", "cuda": "_kernel.ksearch_call(tensors, outputs)"}

_CUDA = """from torch.utils.cpp_extension import load_inline

KERNEL = {source}

GLUE = {glue}

_kernel = load_inline(
    name="ksearch_kernel",
    cpp_sources="void ksearch_call(std::vector<torch::Tensor> inputs, std::vector<torch::Tensor> outputs);",
    cuda_sources=KERNEL + GLUE,
    functions=["ksearch_call"],
    extra_cuda_cflags=["-std=c++17", "-O3"],
)
"""

_GLUE = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <vector>

void ksearch_call(std::vector<torch::Tensor> inputs, std::vector<torch::Tensor> outputs) {
    std::vector<const void*> given;
    std::vector<void*> results;
    std::vector<const int64_t*> shapes;
    for (auto& tensor : inputs) {
        given.push_back(tensor.data_ptr());
        shapes.push_back(tensor.sizes().data());
    }
    for (auto& tensor : outputs) {
        results.push_back(tensor.data_ptr());
        shapes.push_back(tensor.sizes().data());
    }
    int status = ksearch_run(given.data(), results.data(), shapes.data(), at::cuda::getCurrentCUDAStream().stream());
    TORCH_CHECK(status == 0, "the kernel returns ", status);
}
"""
