from __future__ import annotations

import pytest

from actors.bus.nats.wire import proves_nothing


@pytest.mark.parametrize(
    ("there", "expected", "open_why"),
    [
        (56, 56, True),  # the retry came while the first try was under way
        (54, 56, True),  # who was asked has not heard of the last ones yet
        (0, 0, True),
        (57, 56, False),
        (3, 0, False),
        (0, 56, False),  # it is another stream of this name
    ],
)
def test_what_is_there_says_who_wrote_first_or_leaves_it_open(there: int, expected: int, open_why: bool) -> None:
    assert proves_nothing(there, expected) is open_why
