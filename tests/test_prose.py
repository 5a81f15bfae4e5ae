"""Text for people avoids the forms that the house style forbids: one table of forms, each with its reason.

Text for people is every page of documentation, `--help`, the texts that programs print, docstrings and comments.
Prompts are for models.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTES = ROOT / "docs" / "design"
PAGES = sorted(
    page
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    if NOTES not in page.parents
)
PACKAGES = ("ksearch_async", "actors", "evaluators", "messages")
FOR_MODELS = (
    "actors/planner/prompts.py",
    "actors/planner/core/steering.py",  # a title that journals hold
    "actors/coder",
    "actors/llm/offline",
    "evaluators/hardware/profiles.py",
    "evaluators/judge/description.py",
    "evaluators/languages",
    "evaluators/tasks/flashinfer/reading.py",
    "ksearch_async/evaluation/drafts.py",
)
"""Modules and folders with texts of prompts, and of answers by rules."""
SOURCES = sorted(module for package in PACKAGES for module in (ROOT / package).rglob("*.py"))
FROZEN = re.compile(r"evaluators/tasks/(problems/|\w+/(upstream_case|drawn_inputs|drawn_outputs|replay)\.py)")
"""Their texts are part of tasks, and so of the ids in recorded runs."""
MODULES = [module for module in SOURCES if not str(module.relative_to(ROOT)).startswith(FOR_MODELS)]


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A forbidden form of words."""

    pattern: str
    """Regular expression over one sentence, without regard to case unless it says so."""
    reason: str
    bad: str
    """A sentence that has the form."""
    good: str
    """The same fact without it."""


FORMS = (
    Form(
        pattern=r"^(What|Whether|Of what)\b(?!.*\?$|: )",
        reason="a noun is clearer than a clause as the subject",
        bad="What is wrong is told in one line.",
        good="Errors are one line long.",
    ),
    Form(
        pattern=r"\b(is|are|was|were|be) told\b",
        reason="name who reports what",
        bad="The planner is told of failures.",
        good="The planner receives the failures.",
    ),
    Form(
        pattern=r"\bit is (said|known|looked)\b",
        reason="impersonal: name the subject",
        bad="It is said which host did it.",
        good="The log names the host.",
    ),
    Form(
        pattern=r"\bwhose\b",
        reason="reads as translated: use `with` or a second sentence",
        bad="a run whose planner died",
        good="a run that lost its planner",
    ),
    Form(
        pattern=r"\bsuch an?\b",
        reason="say which one",
        bad="Such a run ends with 3.",
        good="This run ends with 3.",
    ),
    Form(
        pattern=r"\bso (many|much)\b",
        reason="say how many",
        bad="Leave after so many seconds.",
        good="Leave after N seconds.",
    ),
    Form(
        pattern=r"\b(comes|came) to\b",
        reason="use the plain verb: is, costs, measures",
        bad="It comes to 1.02x.",
        good="It measures 1.02x.",
    ),
    Form(
        pattern=r"\bas (the |an? )?[\w'-]+ (has|have|had) it\b",
        reason="cite it: `as in X`, `X reports`",
        bad="That is wrong, as the harness has it.",
        good="The harness reports that, too.",
    ),
    Form(
        pattern=r"\b(who|that) (is|are) late\b|\bwho(so)?ever\b",
        reason="no persons for programs: name the process",
        bad="Whoever waits gives up.",
        good="A waiting process gives up.",
    ),
    Form(
        pattern=r"\b(nobody|somebody|anybody|everybody)\b(?! else)",
        reason="no persons for programs: name the process or the user",
        bad="Nobody leads the run.",
        good="No planner leads the run.",
    ),
    Form(
        pattern=r"\bone's own\b",
        reason="address the reader: your own",
        bad="Add a kernel of one's own.",
        good="Add your own kernel.",
    ),
    Form(
        pattern=r"\bsweep(s|ing)?\b|\bswept\b",
        reason="the field's term is L2 flush",
        bad="The caches are swept.",
        good="The caches are flushed.",
    ),
    Form(
        pattern=r"\bfates?\b",
        reason="the term for people is status; `fate` is a JSON key",
        bad="Every fate was right.",
        good="Every status was right.",
    ),
    Form(
        pattern=r"\boutpaced\b",
        reason="the term for people is stopped early; `outpaced` is a JSON value",
        bad="Slow candidates are outpaced.",
        good="Slow candidates are stopped early.",
    ),
    Form(
        pattern=r"\bfamil(y|ies) of (data|inputs)\b",
        reason="the field's term is input distribution",
        bad="Other families of data follow.",
        good="Other input distributions follow.",
    ),
    Form(
        pattern=r"\bgo(es)? on nowhere\b|\bof which it is\b|\bas (much|many) as told\b|, as told\b",
        reason="reads as translated",
        bad="The run goes on nowhere.",
        good="The run is not running.",
    ),
)


def sentences(markdown: str) -> Iterator[str]:
    """Yield the sentences of a page: paragraphs, list items and table cells, without code and addresses."""
    text = re.sub(r"^ *```.*?^ *```", "\n", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", "``", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *([-*]|\d+\.) ", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}", "", text)
    for block in re.split(r"\n\s*\n|\|", text):
        yield from filter(None, re.split(r"(?<=[.!?])\s+", " ".join(block.split())))


def printed_texts(source: str) -> Iterator[str]:
    """Yield the texts of a module that a person may see: strings of more than a word, docstrings aside."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text.strip() and id(node) not in docstrings:
            yield text


def help_texts(source: str) -> Iterator[str]:
    """Yield what `--help` shows of a module: docstrings of commands, and of the fields of their flags."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_command"):
            yield re.sub(r"^ +(\w+: )", r"\n\n\1", ast.get_docstring(node) or "", flags=re.MULTILINE)
        elif isinstance(node, ast.ClassDef):
            for field, text in pairwise(node.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    yield str(getattr(text.value, "value", ""))


def notes(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            # Arguments and errors begin sentences of their own; a file's name is none.
            text = re.sub(r"^ +([\w.]+: )", r"\n\n\1", node.value.value, flags=re.MULTILINE)
            yield re.sub(r"\S+/\S+", "", text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def violations(markdown: str) -> list[str]:
    """Return a line per forbidden form in the page: the sentence, the words and the reason."""
    return [
        f"{sentence!r}: {found[0]!r}: {form.reason}"
        for sentence in sentences(markdown)
        for form in FORMS
        if (found := re.search(form.pattern, sentence, re.IGNORECASE))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_form_that_the_style_forbids(page: Path) -> None:
    assert violations(page.read_text()) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_a_printed_text_has_no_form_that_the_style_forbids(module: Path) -> None:
    texts = [*printed_texts(source := module.read_text())]
    if module.parent.name == "cli" or module.name == "options.py":
        texts += help_texts(source)
    assert [line for text in texts for line in violations(text)] == []


@pytest.mark.parametrize(
    "module",
    [module for module in SOURCES if not FROZEN.search(str(module))],
    ids=lambda module: str(module.relative_to(ROOT)),
)
def test_a_docstring_or_comment_has_no_form_that_the_style_forbids(module: Path) -> None:
    assert [line for text in notes(module.read_text()) for line in violations(text)] == []


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.bad)
def test_a_form_is_found_where_it_is_planted_and_not_in_its_correction(form: Form) -> None:
    assert any(form.reason in line for line in violations(f"# Title\n\n- First.\n- {form.bad}\n"))
    assert violations(f"# Title\n\nFirst. {form.good}\n") == []


def test_code_headings_questions_and_addresses_are_no_prose() -> None:
    page = (
        "# What candidates may call\n\n```text\nfates 3 outpaced\n```\n\nWhat is it? See [here](a/sweep.md), `fate`.\n"
    )
    assert violations(page) == []
