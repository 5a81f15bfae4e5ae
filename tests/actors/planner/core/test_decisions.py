"""What a search decides stays as it is, unless that is meant: without drafts and merges nothing may change."""

from __future__ import annotations

import pytest

from tests.actors.planner.core.decisions import SEARCHES, decisions, kept


def difference(before: object, now: object) -> object:
    """Return what was kept and is not so any more; fields that structs have got since are not looked at."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = {key: difference(value, now.get(key)) for key, value in before.items() if key != "reason"}  # for people
        return {key: value for key, value in found.items() if value is not None} or None
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        each = [difference(*pair) for pair in zip(before, now, strict=True)]
        return [changed for changed in each if changed is not None] or None
    return None if before == now else (before, now)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_decides_as_it_did_when_its_decisions_were_kept(name: str) -> None:
    before, now = kept()[name], decisions(name)
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        assert difference(old, new) is None, f"decision {number}"
    assert len(now) == len(before)
