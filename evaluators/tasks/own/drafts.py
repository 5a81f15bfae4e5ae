"""Tasks that a model drafted: read from its answer, written, and taken on by a person. Runs nothing of them.

A draft is a `task.toml` and a `reference.py`. Of the document a model writes what the task is; what eases the judging
(tolerance, rules) is a person's to write. The reference is held to `vetting.py`.

- `read_draft(document, reference, name) -> Document`, raises ConfigError
- `write_draft(parent, document, reference) -> folder`
- `draft_of(name) -> Draft | None`, `accept_draft(folder)`
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from msgspec import structs

from evaluators.tasks.own.document import DOCUMENT, Document, Draft, parse_document, read_document
from evaluators.tasks.own.reading import find_folder, read_task
from evaluators.tasks.own.template import NAME, REFERENCE
from evaluators.tasks.own.vetting import vet_reference
from evaluators.tasks.own.writing import write_folder
from messages.base import ConfigError

MODELS_KEYS = ("name", "description", "reference", "inputs", "workloads", "hidden_workloads")
"""What a model may say in a document."""
_OPEN = re.compile(r"^(?P<before>\[draft\]\s.*?^accepted\s*=\s*)false\b", re.MULTILINE | re.DOTALL)


def read_draft(document: str, reference: str, name: str = "") -> Document:
    """Return the document of a draft, which is a task that can be read.

    Args:
        document: text of a `task.toml`.
        reference: text of its `reference.py`.
        name: of the task; empty: as the document says.

    Raises:
        ConfigError: what is wrong with it, one complaint a line: for whoever wrote it.
    """
    found = parse_document(document, DOCUMENT)
    if name:
        found = structs.replace(found, name=name)
    if complaints := (*_of_document(found), *(f"{REFERENCE}, {one}" for one in vet_reference(reference))):
        raise ConfigError("\n".join(complaints))
    with tempfile.TemporaryDirectory(prefix="ksearch-draft-") as folder:
        write_folder(Path(folder), found, {REFERENCE: reference})
        try:
            read_task(folder)
        except ConfigError as error:
            raise ConfigError(str(error).replace(f"{folder}/", "")) from error
    return found


def _of_document(found: Document) -> list[str]:
    plain = Document(name="", reference="")
    complaints = [
        f"{DOCUMENT}, {key}: a person says this; leave it out"
        for key in found.__struct_fields__
        if key not in MODELS_KEYS and getattr(found, key) != getattr(plain, key)
    ]
    if not NAME.fullmatch(found.name):
        complaints.append(f"{DOCUMENT}, name: {found.name!r} is no name: letters, digits and _, as a function's")
    if not found.reference.startswith(f"{REFERENCE}:"):
        complaints.append(f'{DOCUMENT}, reference: {found.reference!r}; write "{REFERENCE}:FUNCTION"')
    if isinstance(found.inputs, str):
        complaints.append(f"{DOCUMENT}, inputs: {found.inputs!r}; list them, each in its [[inputs]]")
    if not found.description.strip():
        complaints.append(f"{DOCUMENT}, description: it is empty")
    return complaints


def write_draft(parent: Path, document: Document, reference: str) -> Path:
    """Write a draft as a folder of its own, and return that.

    Args:
        parent: where the folder is made.
        document: of the draft; its name is the folder's.
        reference: text of `reference.py`.

    Raises:
        ConfigError: there is something already, or it cannot be written.
    """
    folder = parent / document.name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(f"{str(folder)!r} is there already; name another task, or remove it") from error
    except OSError as error:
        raise ConfigError(f"cannot write {str(folder)!r}: {error.strerror}") from error
    write_folder(folder, document, {REFERENCE: reference})
    return folder


def draft_of(name: str) -> Draft | None:
    """Return that a task is a draft which nobody has accepted; None where it is none.

    Args:
        name: of a task, as people call it.

    Raises:
        ConfigError: its document cannot be read.
    """
    folder = find_folder(name)
    draft = None if folder is None else read_document(folder / DOCUMENT).draft
    return None if draft is None or draft.accepted else draft


def accept_draft(name: str) -> None:
    """Write down that a person took a draft on; the rest of its document stays as it is.

    Raises:
        ConfigError: it is no draft, or cannot be written.
    """
    folder = find_folder(name)
    if folder is None or draft_of(name) is None:
        raise ConfigError(f"{name!r} is no draft that waits to be accepted")
    path = folder / DOCUMENT
    changed, count = _OPEN.subn(r"\g<before>true", path.read_text(encoding="utf-8"), count=1)
    if not count:
        raise ConfigError(f"{str(path)!r} has no line 'accepted = false' under [draft]; write 'accepted = true' there")
    try:
        path.write_text(changed, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error
