"""What a runner says of its isolation, as one number."""

from __future__ import annotations

import pytest

from evaluators.process.sandbox.claims import missing_for_strict, pack, unpack
from evaluators.process.sandbox.probe import HostLayers, probe_layers, require_layers
from messages.base import EvaluatorError

FULL = {
    "namespaces": "net+ipc+uts+mount namespaces",
    "private root": "private root",
    "uid": "uid 65534",
    "user namespace": "user namespace",
    "rlimits": "rlimits",
    "no privileges": "no privileges",
    "landlock": "landlock 7",
    "seccomp": "seccomp",
}


def test_a_claim_says_all_layers_and_their_numbers_the_strongest_first() -> None:
    assert set(unpack(pack(FULL))) == set(FULL.values())
    assert unpack(pack(FULL))[:2] == ("landlock 7", "seccomp")
    assert unpack(pack({})) == ()
    assert pack(FULL) < 1 << 63


@pytest.mark.parametrize(
    ("left_out", "missing"),
    [
        (set(), ()),
        ({"landlock"}, ()),
        ({"private root"}, ()),
        ({"landlock", "private root"}, ("Landlock or a private root",)),
        ({"seccomp"}, ("seccomp",)),
        ({"seccomp", "namespaces"}, ("seccomp", "a network namespace")),
    ],
)
def test_strict_names_what_is_missing(left_out: set[str], missing: tuple[str, ...]) -> None:
    claim = pack({name: label for name, label in FULL.items() if name not in left_out})
    assert missing_for_strict(claim) == missing


def test_strict_refuses_a_host_that_lacks_something_and_auto_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = HostLayers(pack({"rlimits": "rlimits"}), {"landlock": "Function not implemented"})
    monkeypatch.setattr("evaluators.process.sandbox.probe.probe_layers", lambda: bare)
    require_layers("auto")
    with pytest.raises(EvaluatorError, match="lacks Landlock or a private root, seccomp, a network namespace"):
        require_layers("strict")


def test_a_host_is_asked_once() -> None:
    assert probe_layers() is probe_layers()
