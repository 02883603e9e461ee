"""Formats received messages: the body, JSON, a format string like kcat's, or a hex dump.

A pipe gets every byte unchanged. On a terminal, control characters are escaped.
"""

import re
from collections.abc import Callable

import msgspec

from pyromq.cli.stored_messages import body_field
from pyromq.client.values import ReceivedMessage
from pyromq.errors import ConfigError

Render = Callable[[ReceivedMessage], bytes]

_NAMED = "value, json, hex"
_HEX_COLUMNS = 16
_PIECE = re.compile(r"%(.)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)|([%\\])", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_FIELDS: dict[str, Render] = {
    "%": lambda message: b"%",
    "s": lambda message: message.body,
    "S": lambda message: b"%d" % len(message.body),
    "k": lambda message: " ".join(message.keys).encode(),
    "K": lambda message: b"%d" % len(" ".join(message.keys).encode()),
    "g": lambda message: (message.tags or "").encode(),
    "t": lambda message: message.topic.encode(),
    "b": lambda message: message.queue.broker_name.encode(),
    "p": lambda message: b"%d" % message.queue.queue_id,
    "o": lambda message: b"%d" % message.queue_offset,
    "T": lambda message: b"%d" % message.stored_ms,
    "i": lambda message: message.message_id.encode(),
    "h": lambda message: ",".join(f"{name}={text}" for name, text in message.properties.items()).encode(),
}


def renderer(form: str, *, is_terminal: bool) -> Render:
    """The function for a format; raises ConfigError for an unknown one."""
    named: dict[str, Render] = {"value": _value, "json": _json, "hex": _hex}
    render = named.get(form)
    if render is None:
        if "%" not in form:
            raise ConfigError("format", form, f"{_NAMED}, or a format string such as '%t %o %s\\n'")
        render = _formatted(form)
    if not is_terminal:
        return render
    return lambda message: _visible(render(message))


def _value(message: ReceivedMessage) -> bytes:
    return message.body + b"\n"


def _json(message: ReceivedMessage) -> bytes:
    described: dict[str, object] = {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "bornTimestamp": message.born_ms,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.stored_ms,
        "reconsumeTimes": message.reconsume_times,
        "flag": message.flag,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
    }
    return msgspec.json.encode(described | body_field(message.body)) + b"\n"


def _formatted(form: str) -> Render:
    pieces: list[Render] = []
    for field, escape, text, lone in _PIECE.findall(form):
        if field:
            if field not in _FIELDS:
                raise ConfigError("format", f"%{field}", f"one of %{' %'.join(_FIELDS)}")
            pieces.append(_FIELDS[field])
        elif escape in _ESCAPES:
            pieces.append(_constant(_ESCAPES[escape]))
        elif len(escape) == 3:
            pieces.append(_constant(bytes.fromhex(escape[1:])))
        elif escape:
            pieces.append(_constant(f"\\{escape}".encode()))
        else:
            pieces.append(_constant((text or lone).encode()))
    return lambda message: b"".join([piece(message) for piece in pieces])


def _constant(text: bytes) -> Render:
    return lambda message: text


def _hex(message: ReceivedMessage) -> bytes:
    keys = f" keys={' '.join(message.keys)}" if message.keys else ""
    tags = f" tags={message.tags}" if message.tags else ""
    lines = [f"{message.queue} offset={message.queue_offset}{keys}{tags} {len(message.body)} bytes"]
    for start in range(0, len(message.body), _HEX_COLUMNS):
        row = message.body[start : start + _HEX_COLUMNS]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  |{text}|")
    return "\n".join([*lines, ""]).encode()


def _visible(data: bytes) -> bytes:
    text = data.decode(errors="backslashreplace")
    if text.replace("\n", " ").isprintable():
        return text.encode()
    shown = (each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
    return "".join(shown).encode()
