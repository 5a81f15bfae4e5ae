"""How people name what was written in a run."""

from __future__ import annotations

import pytest

from ksearch_async.runs.candidates import Version, Versions
from ksearch_async.runs.run import Run
from messages.base import ConfigError
from messages.codec import Record
from messages.facts import BranchStarted
from tests.ksearch_async.stories import (
    FAST,
    FASTER_KERNEL,
    KERNEL,
    SLOPPY,
    attempt,
    decided,
    inserted,
    records_of,
    sequel,
    story,
)


def versions_of(records: list[Record]) -> Versions:
    return Versions(Run.of(records, with_texts=True))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("1", SLOPPY),
        ("2", KERNEL),
        ("3", FASTER_KERNEL),
        ("n2", FASTER_KERNEL),
        ("best", FASTER_KERNEL),
        (KERNEL.candidate_id, KERNEL),
        (KERNEL.candidate_id[:6].upper(), KERNEL),
        ("n0", None),
    ],
)
def test_a_version_is_named_by_round_node_id_or_best(name: str, meant: object) -> None:
    found = versions_of(sequel()).named(name)
    assert (found and found.candidate) == meant


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (None, None, (KERNEL, FASTER_KERNEL)),
        ("3", None, (KERNEL, FASTER_KERNEL)),
        ("base", "best", (KERNEL, FASTER_KERNEL)),
        ("best", "parent", (FASTER_KERNEL, KERNEL)),
        ("1", "3", (SLOPPY, FASTER_KERNEL)),
        ("2", None, (None, KERNEL)),
    ],
)
def test_one_version_alone_is_compared_with_what_it_was_started_from(
    a: str | None, b: str | None, expected: tuple[object, object]
) -> None:
    pair = versions_of(sequel()).pair(a, b)
    assert tuple(version and version.candidate for version in pair) == expected


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("9", "no round 9", "rounds 1 to 3 were evaluated"),
        ("n9", "no node 'n9'", "ksearch tree"),
        ("zzzz", "no candidate 'zzzz'", "name a round"),
        (KERNEL.candidate_id[:3], "no candidate", "name a round"),
        ("", "no candidate ''", "name a round"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(name: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        versions_of(sequel()).named(name)
    assert hint in caught.value.__notes__[0]


def test_a_node_without_a_correct_candidate_and_a_run_without_any_are_said_to_be_so() -> None:
    with pytest.raises(ConfigError, match=r"node n1 has no correct candidate \(in flight\)"):
        versions_of(story(None)[:8]).named("n1")
    with pytest.raises(ConfigError, match="no best kernel"):
        versions_of(story(None)[:8]).named("best")
    with pytest.raises(ConfigError, match="has no candidate yet"):
        versions_of(story(None)[:3]).named("best")


def test_a_candidate_that_is_written_again_keeps_its_place_and_base() -> None:
    told = sequel()
    again = [
        decided(
            inserted("n3", "n2", "the same once more"),
            BranchStarted(branch_id="b30", node_id="n3", base_id=FASTER_KERNEL.candidate_id),
        ),
        *attempt(12, KERNEL, FAST, branch_id="b30", node_id="n3")[:2],
    ]
    version = versions_of(told + records_of(again, after=len(told))).named("2")
    assert version is not None
    assert (version.node_id, version.base_id, version.round) == ("n1", None, 2)


def test_two_bases_of_each_other_mean_nothing() -> None:
    with pytest.raises(ConfigError, match="both are to be the other's base"):
        versions_of(sequel()).pair("base", "parent")


def test_the_reference_alone_has_nothing_to_be_compared_with() -> None:
    with pytest.raises(ConfigError, match="'n0' is the reference, which has no base"):
        versions_of(sequel()).pair("n0", None)


def test_a_version_says_its_round_node_and_result() -> None:
    versions = versions_of(sequel())
    said = [version.said for name in ("1", "2") if isinstance(version := versions.named(name), Version)]
    assert said == ["round 1, n1, wrong", "round 2, n1, 2.00x"]
