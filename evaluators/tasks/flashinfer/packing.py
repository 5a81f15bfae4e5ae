"""Solutions of FlashInfer-Bench as candidates, and candidates as solutions.

| solution                            | candidate                                                           |
|-------------------------------------|---------------------------------------------------------------------|
| python                              | `python`, called in destination-passing style                       |
| triton, one file, outputs passed    | `triton`                                                            |
| triton, otherwise                   | `python`                                                            |
| cpp, cuda with tvm-ffi              | `cpp`, `cuda`: our contract takes tvm-ffi's functions               |
| cpp, cuda with torch                | `python` that builds the extension (`load_inline`) at its top level |
| tilelang                            | refused                                                             |

A solution that returns its outputs gets a main file that copies them to the destinations, which costs that copy.

- `candidate_of(solution, definition) -> Candidate`, raises ConfigError
- `candidate_of_json(text, shown, task) -> Candidate`, raises ConfigError
- `solution_of(candidate, definition, ...) -> Solution`, raises ConfigError
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from evaluators.languages import SPECS
from evaluators.tasks.flashinfer.trace_set import Argument, BuildSpec, Definition, Solution, Source, parse_solution
from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile, TaskSpec

_MAIN = "ksearch_main.py"
_BINDING = "ksearch_binding"
_TVM_EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_HARDWARE = {"cpp": "cpu", "cuda": "cuda", "triton": "cuda", "python": "cuda"}
_C_NUMBERS = {"float": "double", "int": "int64_t", "bool": "bool"}


def candidate_of(solution: Solution, definition: Definition) -> Candidate:
    """Return a solution as a candidate for the task of its definition.

    Raises:
        ConfigError: it is for another definition, or of a kind that cannot be run here.
    """
    return _candidate(solution, definition.name, len(definition.inputs), tuple(definition.outputs))


def candidate_of_json(text: str, shown: str, task: TaskSpec) -> Candidate:
    """Return a solution's JSON as a candidate for the task of its definition.

    Args:
        text: text of the file.
        shown: name of the file in messages.
        task: made by `reading`, from a definition.

    Raises:
        ConfigError: it is not a solution, for another definition, or of a kind that cannot be run here.
    """
    solution = parse_solution(text.encode(), shown)
    tree = ast.parse(task.text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    reference = next(function for function in functions if function.name == task.entry_point)
    return _candidate(solution, task.name.partition(":")[0], len(reference.args.args), _output_names(tree))


def _output_names(tree: ast.Module) -> tuple[str, ...]:
    """Return the names of outputs that the task's `Model` reads from a reference that returns a dictionary."""
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    return tuple(
        str(node.slice.value)
        for node in ast.walk(model)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    )


def _candidate(solution: Solution, name: str, inputs: int, outputs: tuple[str, ...]) -> Candidate:
    """Return a solution as a candidate.

    Args:
        solution: a valid solution.
        name: name of the definition to solve.
        inputs: number of its inputs.
        outputs: names of its outputs.
    """
    if solution.definition != name:
        raise ConfigError(f"solution {solution.name!r} is for definition {solution.definition!r}, not for {name!r}")
    spec = solution.spec
    if spec.language == "tilelang":
        raise ConfigError(f"solution {solution.name!r} is written in TileLang, which is not run here")
    if spec.language in {"python", "triton"}:
        return _of_python(solution, inputs, outputs)
    if spec.binding == "torch":
        return _of_extension(solution, inputs, outputs)
    if not spec.destination_passing_style:
        raise ConfigError(
            f"solution {solution.name!r} returns its outputs, which functions of tvm-ffi cannot do here: "
            "write it in destination-passing style"
        )
    _require_unit(solution)
    _, entry_point = _entry(solution)
    return Candidate(language=spec.language, entry_point=entry_point, files=_files(solution))


def solution_of(
    candidate: Candidate,
    definition: Definition,
    *,
    name: str,
    author: str,
    target_hardware: tuple[str, ...] = (),
    description: str | None = None,
) -> Solution:
    """Return a candidate as a solution that upstream's builders accept.

    Args:
        candidate: a candidate for the task of this definition.
        definition: the definition.
        name: unique in the folder that it is written to.
        author: name of its author in rankings.
        target_hardware: device names; empty: `cpu` or `cuda`.
        description: text for people.

    Raises:
        ConfigError: it is a module (`ModelNew`), which upstream does not call.
    """
    if candidate.entry_point == "ModelNew":
        raise ConfigError("a torch module (ModelNew) is no solution: FlashInfer-Bench calls functions")
    files = [Source(path=file.path, content=file.text) for file in candidate.files]
    entry_point = f"{candidate.files[0].path}::{candidate.entry_point}"
    if candidate.language in {"cpp", "cuda"} and not any(_TVM_EXPORT in file.text for file in candidate.files):
        binding = _binding(candidate, definition)
        files.append(binding)
        entry_point = f"{binding.path}::run"
    return Solution(
        name=name,
        definition=definition.name,
        author=author,
        spec=BuildSpec(
            language=candidate.language,
            target_hardware=target_hardware or (_HARDWARE[candidate.language],),
            entry_point=entry_point,
            destination_passing_style=True,
            binding="tvm-ffi" if candidate.language in {"cpp", "cuda"} else None,
        ),
        sources=tuple(files),
        description=description,
    )


def _of_python(solution: Solution, inputs: int, outputs: tuple[str, ...]) -> Candidate:
    spec, (entry_file, entry_point) = solution.spec, _entry(solution)
    files = _files(solution)
    if spec.language == "triton" and spec.destination_passing_style and len(files) == 1:
        return Candidate(language="triton", entry_point=entry_point, files=files)
    if spec.destination_passing_style:
        return Candidate(language="python", entry_point=entry_point, files=files)
    module = ".".join(PurePosixPath(entry_file).with_suffix("").parts)
    main = "\n".join(
        (
            f"from {module} import {entry_point} as _returns",
            "",
            "",
            *_copying(inputs, outputs),
        )
    )
    return Candidate(language="python", entry_point="run", files=(SourceFile(path=_MAIN, text=main), *files))


def _of_extension(solution: Solution, inputs: int, outputs: tuple[str, ...]) -> Candidate:
    """Return a module that builds torch's extension from the solution's texts, with headers inserted."""
    _, entry_point = _entry(solution)
    texts = {source.path: source.content for source in solution.sources}
    units = {
        ending: [_without_includes(path, texts) for path in texts if path.endswith(endings)]
        for ending, endings in {"cpp": (".cpp", ".cc", ".cxx", ".c"), "cuda": (".cu",)}.items()
    }
    if not any("PYBIND11_MODULE" in text for text in units["cpp"] + units["cuda"]):
        raise ConfigError(f"solution {solution.name!r} binds with torch, but has no PYBIND11_MODULE in a .cpp file")
    calls = _copying(inputs, outputs)
    if solution.spec.destination_passing_style:
        calls = ["def run(*given):", "    _returns(*given)", ""]
    main = "\n".join(
        (
            "from torch.utils.cpp_extension import load_inline",
            "",
            "_EXTENSION = load_inline(",
            '    name="solution",',
            f"    cpp_sources={units['cpp']!r},",
            *([f"    cuda_sources={units['cuda']!r},"] if units["cuda"] else []),
            ")",
            f"_returns = _EXTENSION.{entry_point}",
            "",
            "",
            *calls,
        )
    )
    return Candidate(language="python", entry_point="run", files=(SourceFile(path=_MAIN, text=main),))


def _copying(inputs: int, outputs: tuple[str, ...]) -> list[str]:
    """Return a function that calls `_returns` with the inputs, and copies its results to the outputs."""
    return [
        "def run(*given):",
        f"    returned = _returns(*given[:{inputs}])",
        "    if isinstance(returned, dict):",
        f"        returned = [returned[name] for name in {outputs!r}]",
        "    if not isinstance(returned, (tuple, list)):",
        "        returned = (returned,)",
        f"    for place, value in zip(given[{inputs}:], returned, strict=True):",
        "        place.copy_(value)",
        "",
    ]


def _without_includes(path: str, texts: dict[str, str], seen: tuple[str, ...] = ()) -> str:
    """Return a file's text with the solution's own headers inserted where they are included."""
    folder = PurePosixPath(path).parent

    def put(match: re.Match[str]) -> str:
        found = next((one for one in (str(folder / match[1]), match[1]) if one in texts), None)
        if found is None:
            return match[0]
        return "" if found in seen else _without_includes(found, texts, (*seen, path, found))

    return _INCLUDE.sub(put, texts[path].replace("#pragma once", ""))


def _binding(candidate: Candidate, definition: Definition) -> Source:
    """Return a file that wraps a raw entry point of ours in a function for tvm-ffi."""
    on_gpu = candidate.language == "cuda"
    tensors = [name for name, argument in definition.inputs.items() if argument.shape is not None]
    parameters = [
        *(_parameter(name, argument) for name, argument in definition.inputs.items()),
        *(f"tvm::ffi::TensorView {name}" for name in definition.outputs),
    ]
    inputs = [f"{name}.data_ptr()" if name in tensors else f"&{name}" for name in definition.inputs]
    outputs = [f"{name}.data_ptr()" for name in definition.outputs]
    shapes = [
        f"{name}.shape().data()" if name in tensors or name in definition.outputs else "nothing"
        for name in (*definition.inputs, *definition.outputs)
    ]
    first = (*tensors, *definition.outputs)[0]
    stream = [
        f"    DLDevice device = {first}.device();",
        "    void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);",
    ]
    text = "\n".join(
        (
            "#include <cstdint>",
            "#include <tvm/ffi/tvm_ffi.h>",
            *(["#include <tvm/ffi/extra/c_env_api.h>"] if on_gpu else []),
            "",
            f'extern "C" int {candidate.entry_point}(',
            f"    const void* const*, void* const*, const int64_t* const*{', void*' if on_gpu else ''});",
            "",
            f"static void {_BINDING}({', '.join(parameters)}) {{",
            "    static const int64_t nothing[1] = {0};",
            "    (void)nothing;",
            f"    const void* inputs[] = {{{', '.join(inputs)}}};",
            f"    void* outputs[] = {{{', '.join(outputs)}}};",
            f"    const int64_t* shapes[] = {{{', '.join(shapes)}}};",
            *(stream if on_gpu else []),
            f"    int status = {candidate.entry_point}(inputs, outputs, shapes{', stream' if on_gpu else ''});",
            '    TVM_FFI_CHECK(status == 0, RuntimeError) << "the kernel returned " << status;',
            "}",
            "",
            f"{_TVM_EXPORT}(run, {_BINDING});",
            "",
        )
    )
    return Source(path=f"{_BINDING}{'.cu' if on_gpu else '.cpp'}", content=text)


def _parameter(name: str, argument: Argument) -> str:
    if argument.shape is not None:
        return f"tvm::ffi::TensorView {name}"
    kind = "bool" if argument.dtype == "bool" else "int" if argument.dtype.startswith("int") else "float"
    return f"{_C_NUMBERS[kind]} {name}"


def _require_unit(solution: Solution) -> None:
    endings = SPECS["cuda" if solution.spec.language == "cuda" else "cpp"].suffixes
    odd = [
        source.path
        for source in solution.sources
        if solution.spec.language == "cuda" and source.path.endswith(SPECS["cpp"].suffixes)
    ]
    if odd:
        raise ConfigError(
            f"solution {solution.name!r}: {odd[0]!r} is no .cu file; CUDA candidates are compiled from .cu files here"
        )
    if not any(source.path.endswith(endings) for source in solution.sources):
        raise ConfigError(f"solution {solution.name!r} has no file to compile: {', '.join(endings)}")


def _entry(solution: Solution) -> tuple[str, str]:
    entry_file, _, function = solution.spec.entry_point.partition("::")
    return entry_file, function


def _files(solution: Solution) -> tuple[SourceFile, ...]:
    """Return the sources with the entry file first."""
    entry_file, _ = _entry(solution)
    ordered = sorted(solution.sources, key=lambda source: source.path != entry_file)
    return tuple(SourceFile(path=source.path, text=source.content) for source in ordered)
