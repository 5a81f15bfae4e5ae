"""Part of exported modules: runs Python text as a module whose functions have a source that can be looked up."""

from __future__ import annotations

import hashlib
import linecache
import sys
from types import ModuleType

from ksearch_async.export.parts.facts import TITLE


def load_text(what: str, text: str) -> ModuleType:
    """Return the module of a text; Triton and tracebacks find its lines.

    Args:
        what: what it is: `kernel`, `reference`.
        text: a Python program.
    """
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    name = f"ksearch_exported_{what}_{digest}"
    file = f"<{what} of {TITLE}, {digest}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = sys.modules[name] = ModuleType(name)
    exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - the text is this module's own
    return module
