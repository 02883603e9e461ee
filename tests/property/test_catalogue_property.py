"""Every declaration goes over the wire and comes back, whatever its fields hold.

The strategies are made from the declared types, so that a new declaration is tested as soon as it exists.
"""

import contextlib
from functools import cache
from typing import Any, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from msgspec import inspect
from tests.support.chance import examples
from tests.support.many_cases import eight_at_a_time

from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol.catalogue import (
    CATALOGUE,
    Answer,
    Declaration,
    Request,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from pyromq.protocol.frame import RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.requests.undeclared import UNDECLARED

assert UNDECLARED, "importing it has completed the catalogue"

DECLARATIONS = eight_at_a_time("declarations", CATALOGUE.values(), named=lambda each: each.name)
# Many declarations with few examples each: together they are many examples of every kind of field.
QUICK = settings(
    max_examples=examples(6), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Binary headers do not know the empty text.
FULL_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def _values(described: inspect.Type, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    match described:
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=least, le=most):
            return st.integers(least, most)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.StrType():
            return text
        case inspect.BytesType():
            return st.binary(max_size=20)
        case inspect.EnumType(cls=members):
            return st.sampled_from(list(members))
        case inspect.StructType(cls=inner):
            return _structs(inner)
        case inspect.ListType(item_type=item):
            return st.lists(_values(item, text), max_size=2)
        case inspect.SetType(item_type=item):
            return st.sets(_values(item, text), max_size=2)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values(key, text), _values(value, text), max_size=2)
        case inspect.UnionType(types=choices):
            return st.one_of(*(_values(choice, text) for choice in choices))
        case inspect.NoneType():
            return st.none()
    raise TypeError(f"no strategy is known for {described}")


def _written(field: inspect.Field) -> inspect.Type:
    """What is not there reads as the default, so only a default of None can be sent as None."""
    if isinstance(field.type, inspect.UnionType) and field.default is not None:
        return inspect.UnionType(
            tuple(each for each in field.type.types if not isinstance(each, inspect.NoneType))
        )
    return field.type


@cache
def _structs(type_: type[msgspec.Struct], *, full_text: bool = False) -> st.SearchStrategy[Any]:
    described = inspect.type_info(type_)
    assert isinstance(described, inspect.StructType)
    text = FULL_TEXT if full_text else TEXT
    fields = {
        field.name: _values(_written(field), text if field.name != "body" else TEXT)
        for field in described.fields
    }
    return st.fixed_dictionaries(fields).map(lambda values: type_(**values))


def _over_the_wire(frame: Frame) -> Frame:
    reader = FrameReader()
    (arrived,) = reader.feed(encode_frame(frame))
    assert reader.buffered_bytes == 0
    return arrived


@DECLARATIONS
@pytest.mark.parametrize("form", HeaderForm, ids=lambda form: form.name)
@QUICK
@given(data=st.data(), opaque=INT32, oneway=st.booleans())
def test_every_request_comes_back(
    declarations: list[Declaration], form: HeaderForm, data: st.DataObject, opaque: int, oneway: bool
) -> None:
    for declaration in declarations:
        note(declaration.name)
        value: Request[Any] = data.draw(
            _structs(declaration.request_type, full_text=form is HeaderForm.BINARY)
        )
        frame = _over_the_wire(encode_request(value, opaque, form=form, oneway=oneway))
        assert (frame.code, frame.opaque, frame.is_oneway) == (declaration.code, opaque, oneway)
        assert not frame.is_response
        assert decode_request(declaration, frame) == value


@DECLARATIONS
@pytest.mark.parametrize("form", HeaderForm, ids=lambda form: form.name)
@QUICK
@given(data=st.data(), opaque=INT32)
def test_every_answer_comes_back(
    declarations: list[Declaration], form: HeaderForm, data: st.DataObject, opaque: int
) -> None:
    for declaration in declarations:
        note(declaration.name)
        value: Answer = data.draw(_structs(declaration.answer_type, full_text=form is HeaderForm.BINARY))
        value.code = data.draw(st.sampled_from(sorted(declaration.accepts)))
        asked = Frame(code=declaration.code, opaque=opaque, form=form)
        frame = _over_the_wire(encode_answer(declaration, value, asked))
        assert (frame.opaque, frame.flag, frame.form) == (opaque, RESPONSE_FLAG, form)
        assert decode_answer(declaration.request_type, frame) == value


def _odd_ext(declaration: Declaration) -> st.SearchStrategy[dict[str, str]]:
    """Fields that may be missing, of another type, out of range, or unheard of."""
    odd = (
        TEXT | st.integers().map(str) | st.sampled_from(["", "true", "null", "NaN", "1e9", "-0", " 1", "0x1"])
    )
    known = {wire_name: odd for part in _parts(declaration) for _, wire_name, _ in part.written}
    return st.builds(
        lambda named, others: {**others, **named},
        st.fixed_dictionaries({}, optional=known),
        st.dictionaries(TEXT, TEXT, max_size=2),
    )


def _parts(declaration: Declaration) -> list[Any]:
    return [declaration.request_part, declaration.answer_part]


@DECLARATIONS
@QUICK
@given(data=st.data())
def test_a_frame_with_anything_in_it_is_a_request_or_refused(
    declarations: list[Declaration], data: st.DataObject
) -> None:
    for declaration in declarations:
        note(declaration.name)
        body = data.draw(st.binary(max_size=20) | st.sampled_from([b"", b"{}", b"[]", b"null", b'{"a":1}']))
        frame = Frame(code=declaration.code, ext=data.draw(_odd_ext(declaration)), body=body)
        with contextlib.suppress(Refused):
            assert isinstance(decode_request(declaration, frame), declaration.request_type)
        with contextlib.suppress(RemoteProtocolError):
            answer = decode_answer(declaration.request_type, msgspec.structs.replace(frame, code=0))
            assert isinstance(answer, get_origin(declaration.answer_type) or declaration.answer_type)
