"""Requests that no decent client sends, made from the catalogue: a new declaration joins them at once."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from pyromq.protocol import json_body
from pyromq.protocol.catalogue import Declaration, Request, encode_request
from pyromq.protocol.frame import Frame, HeaderForm

BAD_TEXTS = (
    "",
    " ",
    "abc",
    "null",
    "true",
    "-1",
    "-0",
    "1.5",
    "1e3",
    "٣",
    str(2**31 - 1),
    str(-(2**31)),
    str(2**31),
    str(2**63 - 1),
    str(-(2**63)),
    str(2**63),
    "9" * 30,
    "9" * 5000,
    "²",
    "../../../../etc/passwd",
    ".",
    "a\x00b",
    "\x01\x02",
    "%RETRY%",
    "%DLQ%nobody",
    "SCHEDULE_TOPIC_XXXX",
    "é𝄞",
    "x" * 20_000,
)
"""Each stands, one after the other, in every field. Binary headers cannot say the empty text."""

BAD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31 - 1,
    -(2**31),
    2**63,
    1.5,
    "",
    "abc",
    "../..",
    "a\x00b",
    "\ud800",
    "x" * 20_000,
    [],
    {},
    [[[]]],
    {"a": {"b": None}},
)
"""Each stands, one after the other, at every place of a JSON body."""

BAD_BODIES = (
    b"",
    b"\x00",
    b"\xff\xfe\xfd",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"0",
    b"{",
    b'{"a":',
    b"[" * 50_000,
    b'{"a":' * 20_000,
    b"a=b\nc=\\u12",
    "deleteWhen=²".encode(),
    b"deleteWhen=" + b"9" * 5000,
    b"namesrvAddr=host:" + b"9" * 5000,
    b"maxMessageSize=" + b"9" * 5000,
    b"messageDelayLevel=" + b"9" * 5000 + b"s",
    b'{"a":' + b"9" * 5000 + b"}",
    b"\x00\x00\x00\x16" + b"\x00" * 18,
    b"\x7f\xff\xff\xff" + b"\x00" * 40,
    b"\xff\xff\xff\xff" + b"\x00" * 40,
    b"x" * 100_000,
)

_ODD_NUMBERS = (
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    255,
    65_536,
    10**6,
    2**31 - 1,
    2**62,
    2**63 - 1,
)
_ODD_NAMES = (
    "Orders",
    "shop",
    "%RETRY%shop",
    "%DLQ%shop",
    "%RETRY%nobody",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "nobody",
    "a" * 127,
    "%RETRY%" + "a" * 200,
    "a||b|| ||*",
    "a > 5 AND NOT (b IS NULL)",
    "a in (",
    "a = " + "9" * 5000,
    "Orders@" + "9" * 5000,
    "Orders@" + "9" * 5000 + "@shop",
    "QUEUE_PUT_NUMS",
    "QUEUE_GET_SIZE",
    "SQL92",
    "+message.type=FIFO",
    "TAGS\x01a\x02DELAY\x013\x02",
    "DELAY\x01999999999999999999\x02WAIT\x01false",
    "UNIQ_KEY\x01\x02KEYS\x01" + "k " * 2000,
    "REPLY_TO_CLIENT\x01shop\x02",
    "7F00000100002A9F0000000000000000",
    "Orders;Orders;;",
)

_KNOWN = {
    "topic": "Orders",
    "default_topic": "TBW102",
    "topic_filter_type": "SINGLE_TAG",
    "properties": "KEYS\x01k\x02",
    "subscription": "*",
    "stats_name": "TOPIC_PUT_NUMS",
    "stats_key": "Orders",
    "expression_type": "TAG",
    "attributes": "",
    "boundary_type": "LOWER",
    "data_version": None,
    "request_source": 0,
    "batch": False,
}


def decent_request(declaration: Declaration) -> Request[Any]:
    """A request that makes sense to a broker with the topic Orders and the group shop."""
    request: Request[Any] = _struct(declaration.request_type)
    return request


def _struct(type_: type[msgspec.Struct]) -> Any:
    described = inspect.type_info(type_)
    assert isinstance(described, inspect.StructType)
    return type_(**{field.name: _decent(field.type, field.name) for field in described.fields})


def _decent(described: inspect.Type, name: str) -> Any:
    match described:
        case _ if name in _KNOWN:
            return _KNOWN[name]
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return 1 if name.endswith("_nums") else 0
        case inspect.FloatType():
            return 0.0
        case inspect.StrType():
            return "shop"
        case inspect.BytesType():
            return b"body"
        case inspect.EnumType(cls=members):
            return next(iter(members))
        case inspect.StructType(cls=inner):
            return _struct(inner)
        case inspect.ListType(item_type=item):
            return [_decent(item, name)]
        case inspect.SetType(item_type=item):
            return {_decent(item, name)}
        case inspect.DictType(key_type=key, value_type=value):
            return {_decent(key, name): _decent(value, name)}
        case inspect.UnionType(types=choices):
            return _decent(next(each for each in choices if not isinstance(each, inspect.NoneType)), name)
    raise TypeError(f"nothing decent is known for {described}")


def hostile_frames(declaration: Declaration, form: int) -> Iterator[Frame]:
    """The decent request; without each field; with each bad text in each field; with each bad body."""
    decent = encode_request(decent_request(declaration), 0, form=form)
    yield decent
    yield _changed(decent, {})
    for name in decent.ext:
        yield _changed(decent, {key: text for key, text in decent.ext.items() if key != name})
        for text in BAD_TEXTS:
            yield _changed(decent, {**decent.ext, name: text})
    for text in BAD_TEXTS:
        yield _changed(decent, dict.fromkeys(decent.ext, text))
    for body in (*BAD_BODIES, *_bad_json_bodies(declaration)):
        yield msgspec.structs.replace(decent, body=body)


def random_frame(declaration: Declaration, form: int, random: Random) -> Frame:
    """A request with a few odd fields, most of them of the right type, and perhaps an odd body."""
    frame = encode_request(decent_request(declaration), 0, form=form)
    ext = dict(frame.ext)
    for field in random.sample(declaration.request_part.written, min(3, len(ext), random.randrange(5))):
        name = field[1]
        if random.random() < 0.1:
            ext.pop(name, None)
        else:
            ext[name] = _odd_text(ext.get(name), random)
    body = frame.body
    if random.random() < 0.4:
        body = random.choice([*BAD_BODIES, *_bad_json_bodies(declaration)])
        if body and random.random() < 0.5:
            place = random.randrange(len(body))
            body = body[:place] + bytes([random.randrange(256)]) + body[place + random.randrange(2) :]
    return msgspec.structs.replace(_changed(frame, ext), body=body)


def _odd_text(text: str | None, random: Random) -> str:
    if random.random() < 0.15:
        return random.choice(BAD_TEXTS)
    if text in ("true", "false"):
        return random.choice(("true", "false"))
    if text is not None and text.lstrip("-").isdigit():
        return str(random.choice(_ODD_NUMBERS))
    return random.choice(_ODD_NAMES)


def _changed(frame: Frame, ext: dict[str, str]) -> Frame:
    if frame.form == HeaderForm.BINARY:
        ext = {name: text for name, text in ext.items() if text}
    return msgspec.structs.replace(frame, ext=ext)


def _bad_json_bodies(declaration: Declaration) -> Iterator[bytes]:
    part = declaration.request_part
    if not part.has_body or part.body_type in (bytes, str):
        return
    body: Any = getattr(decent_request(declaration), "body")  # noqa: B009 (only some requests have one)
    document = json.loads(json_body.encode_strict(body))
    for path in _places(document):
        for value in BAD_VALUES:
            yield json.dumps(_with(document, path, value)).encode()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from _places(child, (*path, key))


def _with(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed
