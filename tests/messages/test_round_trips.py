"""Whatever can be said comes back as it was said, through msgpack and through JSON."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import msgspec.inspect as shapes
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages import codec
from messages.calls import ConstantPlace, DictOf, ListOf, Structure, TensorPlace, TupleOf
from messages.codec import Body, Record
from messages.commands import Command
from messages.edits import EditScript

LARGEST = 2**63 - 1
GIVEN = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def values_of(shape: shapes.Type) -> st.SearchStrategy[Any]:
    """Return all values of a type that msgspec would accept, from the type's own description."""
    match shape:
        case shapes.StructType(cls=cls) if cls is TupleOf:
            return st.builds(TupleOf, items=st.lists(NESTS, max_size=2).map(tuple))
        case shapes.UnionType(types=types) if any(is_nest(each) for each in types):
            return NESTS
        case shapes.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values_of(field.type) for field in fields})
        case shapes.UnionType(types=types):
            return st.one_of(*(values_of(each) for each in types))
        case shapes.VarTupleType(item_type=item, min_length=least, max_length=most):
            return st.lists(values_of(item), min_size=least or 0, max_size=min(most or 2, 2)).map(tuple)
        case shapes.TupleType(item_types=items):
            return st.tuples(*(values_of(each) for each in items))
        case shapes.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=2)
        case _:
            return scalars_of(shape)


def is_nest(shape: shapes.Type) -> bool:
    return isinstance(shape, shapes.StructType) and shape.cls is TensorPlace


def nests() -> st.SearchStrategy[Structure]:
    """Return nests: a description of this type would not end."""
    constants = st.builds(ConstantPlace, value=scalars_of(shapes.FloatType()) | st.integers(0, 9) | st.none())
    return st.recursive(st.just(TensorPlace()) | constants, _around, max_leaves=4)


def _around(inner: st.SearchStrategy[Structure]) -> st.SearchStrategy[Structure]:
    items = st.lists(inner, max_size=2).map(tuple)
    keyed = items.map(lambda given: DictOf(keys=tuple(f"k{at}" for at in range(len(given))), items=given))
    return st.builds(ListOf, items=items) | st.builds(TupleOf, items=items) | keyed


def scalars_of(shape: shapes.Type) -> st.SearchStrategy[Any]:
    match shape:
        case shapes.IntType(ge=low, le=high):
            return st.integers(-LARGEST if low is None else low, LARGEST if high is None else high)
        case shapes.FloatType(ge=low, le=high, gt=above):
            return st.floats(
                low if above is None else above,
                high,
                exclude_min=above is not None,
                allow_nan=False,
                allow_infinity=False,
            )
        case shapes.StrType(min_length=least, max_length=most):
            return st.text(min_size=least or 0, max_size=min(most or 20, 20))
        case shapes.BoolType():
            return st.booleans()
        case shapes.NoneType():
            return st.none()
        case shapes.LiteralType(values=values):
            return st.sampled_from(values)
        case _:
            raise AssertionError(f"no strategy for {shape!r}")


NESTS = nests()


def instances_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    return values_of(shapes.type_info(kind))


@pytest.mark.parametrize("kind", get_args(Body), ids=lambda kind: kind.__name__)
@GIVEN
@given(data=st.data())
def test_an_event_comes_back_from_the_wire_and_from_the_journal(
    kind: type[msgspec.Struct], data: st.DataObject
) -> None:
    body = data.draw(instances_of(kind))
    assert codec.decode_body(codec.encode(body)) == body
    record = Record(seq=data.draw(st.integers(1, LARGEST)), at="now", msg_id=data.draw(st.text()), body=body)
    line = codec.encode_line(record)
    assert line.count(b"\n") == 1
    assert codec.decode_line(line) == record


@pytest.mark.parametrize("kind", get_args(Command), ids=lambda kind: kind.__name__)
@GIVEN
@given(data=st.data())
def test_a_command_comes_back_from_the_wire(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    command = data.draw(instances_of(kind))
    assert codec.decode_command(codec.encode(command)) == command


@GIVEN
@given(script=instances_of(EditScript))
def test_an_edit_script_comes_back_from_its_json(script: EditScript) -> None:
    assert codec.decode_script(codec.to_json(script).decode()) == script


@settings(max_examples=300, deadline=None)
@given(junk=st.binary(max_size=60))
def test_no_bytes_whatever_raise_anything_but_a_codec_error(junk: bytes) -> None:
    for decode in (codec.decode_body, codec.decode_command, codec.decode_line):
        with pytest.raises(codec.CodecError):
            decode(junk)
