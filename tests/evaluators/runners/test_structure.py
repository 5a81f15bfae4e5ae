"""Nests of tensors and constants are taken apart and made anew."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.runners.structure import StructureError, describe, flatten, has_room, paths, rebuild, same_form
from messages.calls import CallForm, RoomPlace, Structure, TensorPlace, TupleOf, leaves_of


class Leaf:
    """Stands for a tensor."""


CONSTANTS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=3)
NESTS = st.recursive(
    CONSTANTS | st.builds(Leaf),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def is_leaf(value: object) -> bool:
    return isinstance(value, Leaf)


@settings(deadline=None)
@given(nest=NESTS)
def test_what_was_taken_apart_is_made_anew_the_same(nest: object) -> None:
    form, tensors = flatten(nest, is_leaf)
    assert rebuild(form, tensors) == nest
    assert same_form(form, flatten(nest, is_leaf)[0])
    assert len(list(paths(form, "x"))) == len(tensors)


@settings(deadline=None)
@given(nest=NESTS)
def test_a_form_is_a_message_and_comes_back_from_its_json(nest: object) -> None:
    form, tensors = flatten(nest, is_leaf)
    structure: Structure = msgspec.convert(form, Structure)
    assert sum(isinstance(leaf, TensorPlace) for leaf in leaves_of(structure)) == len(tensors)
    assert rebuild(msgspec.json.decode(msgspec.json.encode(structure)), tensors) == nest


def test_tensors_are_freed_with_the_last_name_for_them_without_a_garbage_collection() -> None:
    leaf = Leaf()
    seen = weakref.ref(leaf)
    gc.disable()
    try:
        form, tensors = flatten([leaf, {"x": (leaf, 1)}], is_leaf)
        rebuild(form, tensors)
        del leaf, tensors
        assert seen() is None
    finally:
        gc.enable()


def test_tensors_are_called_by_their_keys_and_positions() -> None:
    form, _ = flatten({"q": Leaf(), "rest": [1, Leaf(), (Leaf(),)]}, is_leaf)
    assert list(paths(form, "data")) == ["data.q", "data.rest.1", "data.rest.2.0"]
    assert describe(form) == "{'q': tensor, 'rest': [1, tensor, (tensor,)]}"


def test_numbers_among_the_arguments_are_counted_with_the_tensors() -> None:
    form, _ = flatten((Leaf(), "text", 3, None, {"eps": 0.5, "x": Leaf(), "is_causal": True}), is_leaf)
    arguments = msgspec.convert(form, TupleOf)
    assert CallForm(arguments=arguments, outputs=TensorPlace()).constants == ((1, 3), (2, 0.5), (4, True))


@pytest.mark.parametrize(
    ("nest", "complaint"),
    [
        ((1, {2: 3}), r"get_inputs\(\)\[1\] has the key 2"),
        (({"a": {1, 2}},), r"get_inputs\(\)\[0\]\['a'\] is set"),
        ((float("nan"),), "must be finite"),
        ((1 << 70,), "64 bits"),
    ],
)
def test_what_cannot_be_part_of_a_nest_is_refused_with_its_place(nest: object, complaint: str) -> None:
    with pytest.raises(StructureError, match=complaint):
        flatten(nest, is_leaf, "get_inputs()")


def test_a_list_is_as_good_as_a_tuple_and_true_is_not_one() -> None:
    one = flatten([Leaf(), True], is_leaf)[0]
    assert same_form(one, flatten((Leaf(), True), is_leaf)[0])
    assert not same_form(one, flatten((Leaf(), 1), is_leaf)[0])
    assert not same_form(one, flatten((Leaf(), True, None), is_leaf)[0])


def test_room_for_an_output_is_made_anew_and_is_no_input() -> None:
    class Room:
        pass

    def room_of(value: object) -> tuple[tuple[int, ...], str] | None:
        return ((2, 3), "float16") if isinstance(value, Room) else None

    form, tensors = flatten(((Leaf(), Room()),), is_leaf, room_of=room_of)
    made: list[tuple[list[int], str]] = []

    def make_room(shape: Sequence[int], dtype: str) -> object:
        made.append((list(shape), dtype))
        return "room"

    assert rebuild(form, tensors, make_room) == ((tensors[0], "room"),)
    assert made == [([2, 3], "float16")]
    assert has_room(form)
    assert len(list(paths(form, "x"))) == 1
    assert describe(form) == "((tensor, room for float16 (2, 3)),)"
    call = msgspec.convert(form, TupleOf)
    assert leaves_of(call)[1] == RoomPlace(shape=(2, 3), dtype="float16")
    assert CallForm(arguments=call, outputs=TensorPlace()).constants == ()
