"""Solutions become candidates and candidates solutions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evaluators.tasks.flashinfer.packing import candidate_of, candidate_of_json, solution_of
from evaluators.tasks.flashinfer.reading import read_task
from evaluators.tasks.flashinfer.trace_set import Definition, parse_definition, parse_solution
from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile
from tests.evaluators.tasks.flashinfer import sets

CPP = 'extern "C" int ksearch_run(const void* const*, void* const*, const int64_t* const*) { return 0; }\n'


@pytest.fixture(name="definition")
def make_definition() -> Definition:
    return parse_definition(json.dumps(sets.definition()).encode(), "given")


def packed(definition: Definition, document: dict[str, Any]) -> Candidate:
    return candidate_of(parse_solution(json.dumps(document).encode(), "given"), definition)


def test_a_python_solution_that_writes_to_its_outputs_stays_as_it_is(definition: Definition) -> None:
    candidate = packed(definition, sets.solution())
    assert (candidate.language, candidate.entry_point) == ("python", "run")
    assert [file.path for file in candidate.files] == ["main.py", "helper.py"]
    again = solution_of(candidate, definition, name="again", author="us", target_hardware=("cpu",))
    assert packed(definition, json.loads(json.dumps(_as_json(again)))) == candidate


def test_outputs_that_are_returned_are_copied_to_where_they_belong(definition: Definition) -> None:
    candidate = packed(definition, sets.solution(destination_passing_style=False))
    main = candidate.files[0]
    names: dict[str, Any] = {}
    assert "from main import run as _returns" in main.text
    text = main.text.replace("from main import run as _returns", "_returns = lambda *given: (given[0], [9])")
    exec(text, names)  # noqa: S102 - our own text
    places = [_Place(), _Place()]
    names["run"](1, 2, 3, 4, 5, *places)
    assert [place.copied for place in places] == [1, [9]]


@pytest.mark.parametrize("how", [{}, {"destination_passing_style": False}])
def test_a_solutions_file_is_read_for_the_task_of_its_definition(
    definition: Definition, how: dict[str, Any], tmp_path: Path
) -> None:
    document = sets.solution(**how)
    task = read_task(f"{sets.written(tmp_path)}#{sets.NAME}:one")
    assert candidate_of_json(json.dumps(document), "given", task) == packed(definition, document)
    other = msgspec.structs.replace(task, name="another:one")
    with pytest.raises(ConfigError, match=f"is for definition '{sets.NAME}', not for 'another'"):
        candidate_of_json(json.dumps(document), "given", other)


class _Place:
    copied: object = None

    def copy_(self, value: object) -> None:
        self.copied = value


def test_a_triton_program_of_one_file_is_one_here_too(definition: Definition) -> None:
    document = sets.solution(language="triton")
    document["sources"] = document["sources"][1:]
    assert packed(definition, document).language == "triton"
    assert packed(definition, sets.solution(language="triton")).language == "python"


def test_functions_of_tvm_ffi_keep_their_name(definition: Definition) -> None:
    document = sets.solution(language="cpp", entry_point="kernel.cpp::decode")
    document["sources"] = [
        {"path": "kernel.h", "content": "#pragma once\n"},
        {"path": "kernel.cpp", "content": "TVM_FFI_DLL_EXPORT_TYPED_FUNC(decode, f);\n"},
    ]
    candidate = packed(definition, document)
    assert (candidate.language, candidate.entry_point, candidate.files[0].path) == ("cpp", "decode", "kernel.cpp")
    solution = solution_of(candidate, definition, name="again", author="us")
    assert solution.spec.entry_point == "kernel.cpp::decode"
    assert len(solution.sources) == 2


def test_an_extension_of_torch_is_built_by_a_module_with_its_headers_in_place(definition: Definition) -> None:
    document = sets.solution(language="cuda", binding="torch", destination_passing_style=False)
    document["spec"]["entry_point"] = "src/main.cpp::run"
    document["sources"] = [
        {"path": "src/kernel.h", "content": "#pragma once\nvoid launch(int);\n"},
        {"path": "src/kernel.cu", "content": '#include "kernel.h"\nvoid launch(int) {}\n'},
        {"path": "src/main.cpp", "content": '#include "kernel.h"\n#include "kernel.h"\nPYBIND11_MODULE(a, m) {}\n'},
    ]
    candidate = packed(definition, document)
    compile(candidate.files[0].text, "main", "exec")
    assert candidate.language == "python"
    assert "load_inline" in candidate.files[0].text
    assert "#include" not in candidate.files[0].text
    assert candidate.files[0].text.count("void launch(int);") == 3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"language": "tilelang"}, "TileLang"),
        ({"language": "cpp", "destination_passing_style": False}, "destination-passing"),
        ({"language": "cpp"}, "no file to compile"),
        ({"language": "cuda", "binding": "torch"}, "PYBIND11_MODULE"),
    ],
)
def test_what_is_not_run_here_is_refused(spec: dict[str, object], said: str, definition: Definition) -> None:
    with pytest.raises(ConfigError, match=said):
        packed(definition, sets.solution(**spec))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sources": [{"path": "../main.py", "content": "x"}]}, "main.py"),
        ({"definition": "other"}, "'other'"),
        ({"spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "run"}}, "FILE::FUNCTION"),
        ({"spec": {"language": "fortran", "target_hardware": [], "entry_point": "a::b"}}, "fortran"),
    ],
)
def test_a_solution_that_breaks_the_format_is_refused(
    change: dict[str, object], said: str, definition: Definition
) -> None:
    with pytest.raises(ConfigError, match=said):
        packed(definition, {**sets.solution(), **change})


def test_a_raw_entry_point_gets_a_function_of_tvm_ffi_in_front_of_it(definition: Definition) -> None:
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="k.cpp", text=CPP),))
    solution = solution_of(candidate, definition, name="raw", author="us")
    binding = solution.sources[-1].content
    assert solution.spec.entry_point == "ksearch_binding.cpp::run"
    assert (solution.spec.binding, solution.spec.destination_passing_style) == ("tvm-ffi", True)
    assert "double sm_scale" in binding
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, ksearch_binding);" in binding


def test_a_module_is_no_solution(definition: Definition) -> None:
    candidate = Candidate(language="python", entry_point="ModelNew", files=(SourceFile(path="m.py", text="x = 1\n"),))
    with pytest.raises(ConfigError, match="ModelNew"):
        solution_of(candidate, definition, name="m", author="us")


def _as_json(value: object) -> object:

    return msgspec.json.decode(msgspec.json.encode(value))
