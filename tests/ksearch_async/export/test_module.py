"""Parts put together are one module that needs nothing of ours."""

from __future__ import annotations

import ast
import random
import tokenize
from io import BytesIO

import pytest

from ksearch_async.export.module import assemble, docstring, literal, parts_of
from messages.base import Language


@pytest.mark.parametrize("language", ["cpp", "cuda", "triton", "python"])
def test_every_language_can_be_assembled_and_imports_nothing_of_ours(language: Language) -> None:
    text = assemble("it", {"TITLE": "t"}, "x = 1", parts_of(language))
    imported = {
        (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert "ksearch_async" not in imported
    assert "noqa" not in text
    assert "\nimport torch\n" in text


def test_parts_that_define_a_name_twice_are_a_bug_that_is_found() -> None:
    with pytest.raises(AssertionError, match="'cpp' and 'cuda' both define 'check_device'"):
        assemble("it", {}, "", ("cpp", "cuda", "program"))


def test_every_text_comes_back_from_its_literal_and_from_a_file() -> None:
    dice = random.Random(1)
    letters = ["'", '"', "\\", "\n", "\r", "a", "é", "\t", "\x0c", "\0", "\ud800", "{", "'''", '"""', "\u2028"]
    for _ in range(3000):
        text = "".join(dice.choices(letters, k=dice.randrange(12)))
        source = f"x = {literal(text)}\n".encode()
        tokenize.detect_encoding(BytesIO(source).readline)
        assert ast.literal_eval(ast.parse(source).body[0].value) == text  # type: ignore[attr-defined]


def test_every_header_comes_back_from_its_docstring() -> None:
    dice = random.Random(2)
    for _ in range(1000):
        text = "a" + "".join(dice.choices(["'", '"', "\\", "a", "é", "{", '"""'], k=9))
        assert ast.get_docstring(ast.parse(docstring(text)), clean=False) == text + "\n"


def test_texts_of_several_lines_stay_readable() -> None:
    assert literal("int x;\n'''quoted'''\\n\n") == "r\"\"\"int x;\n'''quoted'''\\n\n\"\"\""
    assert literal(frozenset({"b", "a"})) == "frozenset(['a', 'b'])"
