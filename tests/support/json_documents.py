"""Documents such as producers send, and such as they should not: the same ones for the same seed.

`odd_document` has something strange in nearly every field or between them; `usual_document` is what a reader
meets all day, with one in a hundred that is not.
"""
# ruff: noqa: E501, SIM905 (tables of odd texts are read more easily as they are)

import json
import random
from collections.abc import Callable

ODD_DDL = (
    "id bigint, small tinyint, i int, sh smallint, ratio double, f float, price decimal(10,2),"
    " big decimal(38,18), ok boolean, note string, at timestamp, lt timestamp_ntz, day date, raw binary,"
    " tags array<string>, nums array<int>, times array<timestamp>, more map<string,int>,"
    " ms map<string,struct<x:int,y:string>>, sub struct<x:int,y:string,z:array<struct<q:bigint>>,at:timestamp>,"
    " deep array<array<int>>"
)
USUAL_DDL = (
    "id bigint, i int, ratio double, f float, price decimal(10,2), ok boolean, note string, at timestamp,"
    " lt timestamp_ntz, day date, tags array<string>, times array<timestamp>,"
    " sub struct<x:int,y:string,at:timestamp>"
)
_NAMES = [part.split()[0] for part in ODD_DDL.replace(",y", "").replace(",z", "").split(", ")]

TIMES = """2024-01-02T03:04:05Z|2024-01-02 03:04:05|2024-1-2|2024|2024-01|2024-01-02|2024-01-02T03:04:05.123456+02:00
2024-01-02T03:04:05.123456789 Europe/Paris|2024-01-02 03:04:05 PST|2024-01-02T03:04|2024-01-02T03:04Z|2024-01-02T3:4:5
  2024-01-02 03:04:05  |2024-03-31 02:30:00|2024-10-27 02:30:00|2024-03-10 02:30:00|2024-11-03 01:30:00|2024-13-01
2024-02-30|1960-01-01 00:00:00|1890-06-01 12:00:00|0001-01-01 00:00:00|12345-01-01|+2024-01-02|-0044-03-15
123456-01-02 00:00:00|999999-01-01 00:00:00|2024-01-02T03:04:05UTC+1:30|2024-01-02T03:04:05 UTC+01:30
2024-01-02T03:04:05GMT|2024-01-02GMT|2024-01-02 03:04:05+1:5|2024-01-02 03:04:05+18:00|2024-01-02 03:04:05+19:00
2024-01-02 03:04:05+02|2024-01-02 03:04:05+0230|2024-01-02T03:04:05.|2024-01-02T03:04:05.Z|2024-01-02T24:00:00
2024-01-02T|2024-01-02 03:04:60|20240102|19000|-5|-200000|9999999|99999999999|2024-01-02x|2024-01-02T03:04:05x
2024/01/02||-|now|2024-01-02T03:04:05+02:00[Europe/Paris]|2024-01-02\t03:04:05|2024-01-02T03:04:05.1234567
9999-12-31 23:59:59.999999|2038-01-19T03:14:08Z|2024-06-15 10:00:00 America/New_York|2100-06-15 10:00:00
2024-01-02 03:04:05 EST|2024-01-02 03:04:05 Nowhere/Here|2024-01-02 03:04:05 ZZ|2024-01-02T03:04:05-00:00
00002024-01-02|2024-001-02|2024-01-002|294247-01-10T04:00:54.775807Z|294247-01-10T04:00:54.775808Z
-290308-12-21T19:59:06Z""".replace("\n", "|").split("|")
NUMBERS = [
    *"""1 0 -0 -1 127 128 255 256 -129 32768 2147483648 9223372036854775807 9223372036854775808
    -9223372036854775808 1.0 1.5 -0.0 1e3 1E400 -1e400 1e-400 123456789012345678901234567890 0.1 12345678.9
    99999999.99 99999999.995 1.005 0.005 -0.005 1e-7 1.17549435E-38 16777217 16777219 1.00000005960464477540
    1.0000000596046447753906250000000000000000001 33554433.0 9007199254740993 1767355200 1767355200000000
    3.4028236e38 1.23E+5 100 1e2147483648 4.9e-324 2.5 3.5E0 -12.345""".split(),
    *(digit * count for digit in "1" for count in (40, 1000, 1001)),
    *(f"{whole}.{'3' * count}" for whole in "01" for count in (999, 1000, 1001)),
    f"1e{'0' * 998}1",
]
_MISTAKES = [
    *"""NaN Infinity -Infinity +Infinity INF -INF +INF tru True None nul undefined 01 -01 1. 1.e3 .5 -.5 +1 1e 1e+
    0. 0x10 0e 'x' 'it\\'s' "a\\'b" 'a"b' "\\x" "\\u12" "\\u12zz" [1,] [,1] [1,tru,2] {"x":1,} {x:1} {'x':1}
    {"x":tru} {"x":} [ { " - t ] } : , truex null1 nullx 1a "\\ud800" "\\ud83d\\ude00" "\\ude00" {"\\ud800":1}
    [1.5,{"a":"\\u0001é\\n\\u001f"}] é $ _a NaN1 -x -Inf +x -I [1,01,2] [1,1.,2] [1,-x,2] [tru,1]""".split(),
    '"a\tb"',
    '"a\nb"',
    "// c\n1",
    "1 // c",
    "1/* c */",
    "1 2",
    "[1 2]",
    '{"x" 1}',
    '"\x7f"',
    "\x00",
    '[1,"a\tb",2]',
]
_BASE64 = [
    *"""aGk= aGkh a aG aGk aGk== aG== aG=k aGk=aGk= * aGkh* ==== = aGkh= aGkhaGk YQ== YWI= aGkh\\n aG\\u006bh é
    aGkhéaaa \\ud800""".split(),
    *("", "a Gk=", "aGkh aGkh", " aGkh ", "aG k=", "aGkh\taGkh", "aG\tkh"),
]
_TEXTS = [
    *'''"" "text" "é" "\\u00e9\\t\\"\\\\" "1" "1.5" "true" "NaN" "Infinity" "INF" "+INF" "-INF" "-Infinity"
    "1,234.5" "1,2,3" "1e2" "1." ".5" "+1.5" "-" "1_0" "0x1" "\\ud83d\\ude00" "\\u0000" "/\\/" "١٢"'''.split(),
    '" "',
    '" 1"',
]
_NOT_UTF_8 = [
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98",
    b"\xc0\x80",
    b"\x80",
    b"\xf8\x88\x80",
]
_WHOLE = ["", "  ", "\n", "null", "1", "[]", "[{}]", "{}", '"x"', "tru", "{", "[", "\ufeff", "{}{}", "'a'"]
_BLANKS = ["", "", " ", "\n", "\r\n\t"]


def _value(r: random.Random, depth: int = 0) -> str:
    kind = r.randrange(100)
    choices: tuple[tuple[int, Callable[[], str]], ...] = (
        (14, lambda: r.choice(_TEXTS)),
        (30, lambda: r.choice(NUMBERS)),
        (52, lambda: json.dumps(r.choice(TIMES)) if r.random() < 0.9 else f'"{r.choice(TIMES)}"'),
        (57, lambda: r.choice(["true", "false"])),
        (61, lambda: "null"),
        (67, lambda: r.choice(_MISTAKES)),
        (72, lambda: f'"{r.choice(_BASE64)}"'),
    )
    for below, choose in choices:
        if kind < below:
            return choose()
    if depth > 3:
        return "1"
    if kind < 86:
        return _array(r, lambda: _value(r, depth + 1))
    return _object(r, ["x", "y", "z", "q", "at"], lambda _: _value(r, depth + 1))


def _array(r: random.Random, item: Callable[[], str]) -> str:
    return "[" + ", ".join(item() for _ in range(r.randrange(4))) + "]"


def _object(r: random.Random, names: list[str], value: Callable[[str], str]) -> str:
    chosen = [r.choice(names) for _ in range(r.randrange(4))]
    return "{" + ",".join(f'"{name}":{value(name)}' for name in chosen) + "}"


def _fitting(r: random.Random, name: str) -> str:
    """What belongs into a field, more often than not."""
    if r.random() < 0.15:
        return _value(r, 2)
    if name in ("at", "lt", "day"):
        return json.dumps(r.choice(TIMES))
    if name in ("id", "small", "i", "sh", "ratio", "f", "price", "big"):
        return r.choice(NUMBERS) if r.random() < 0.85 else r.choice(_TEXTS)
    if name == "raw":
        return f'"{r.choice(_BASE64)}"'
    if name == "ok":
        return r.choice(["true", "false", "null"])
    if name in ("nums", "x", "q"):
        number = r.choice(["1", "2", "-3", "null"])
        return number if name != "nums" else _array(r, lambda: _fitting(r, "x"))
    if name == "tags":
        return _array(r, lambda: _fitting(r, "note"))
    if name == "times":
        return _array(r, lambda: _fitting(r, "at"))
    if name == "deep":
        return _array(r, lambda: _fitting(r, "nums"))
    if name == "more":
        return _object(r, ["a", "b", "c"], lambda _: _fitting(r, "x"))
    if name == "ms":
        return _object(r, ["a", "b"], lambda _: _fitting(r, "sub"))
    if name == "sub":
        return _object(r, ["x", "y", "z", "at"], lambda inner: _fitting(r, inner))
    if name == "z":
        return _array(r, lambda: _object(r, ["q"], lambda inner: _fitting(r, inner)))
    return r.choice(_TEXTS)


def odd_document(r: random.Random) -> bytes:
    names = r.sample(_NAMES, r.randrange(1, 5))
    if r.random() < 0.1:
        names.append(names[0])
    if r.random() < 0.2:
        names.insert(r.randrange(len(names) + 1), "unknown")
    blank = r.choice(_BLANKS)
    fields = (
        f'{blank}"{name}"{blank}:{blank}{_value(r) if name == "unknown" else _fitting(r, name)}{blank}'
        for name in names
    )
    return _damaged(r, "{" + ",".join(fields) + "}")


def _damaged(r: random.Random, text: str) -> bytes:
    """One of seven has a mistake that has nothing to do with its fields."""
    damage, at = r.randrange(40), r.randrange(len(text))
    if damage == 0:
        text = text[:at]
    elif damage == 1:
        text += r.choice([" x", "}", '{"id":1}', "\n", "  ", ",", "\x00", "garbage"])
    elif damage == 2:
        text = r.choice([" ", "\n", "\ufeff", "\x00", "x", "/**/"]) + text
    elif damage == 3:
        text = r.choice([*_WHOLE, f"[{text}]", "{'id':1}"])
    elif damage == 4:
        text = text[:at] + r.choice('"{}[],:x\\ 1\n') + text[at + 1 :]
    elif damage == 5:
        text = text[:at] + text[at + 1 :]
    body = text.encode("utf-8", "surrogatepass")
    if r.random() < 0.03:
        at = r.randrange(len(body) + 1)
        body = body[:at] + r.choice(_NOT_UTF_8) + body[at:]
    return body


def usual_document(r: random.Random) -> bytes:
    if r.random() < 0.01:
        return odd_document(r)
    moment = f"20{r.randrange(10, 40)}-{r.randrange(1, 13):02}-{r.randrange(1, 29):02}"
    hour = f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}{r.choice(['', '.5', '.123456'])}"
    zone = r.choice(["", "Z", "+02:00", "-11:30"])
    document = {
        "id": r.randrange(-(2**63), 2**63),
        "i": r.randrange(100),
        "ratio": r.choice([0.1, 1e-7, 1e21, 3, 2.5, -0.0, None]),
        "f": r.choice([0.1, 16777217, 3.4e38]),
        "price": r.choice([12.34, 7, "99.5", 0.05, 12.345]),
        "ok": r.choice([True, False, None]),
        "note": r.choice(["", "é", "\U0001f600", 'a "quoted" \\ text\n']),
        "at": f"{moment}{r.choice('T ')}{hour}{zone}",
        "lt": f"{moment} {hour}",
        "day": r.choice([moment, moment, moment, "2024-1-2"]),
        "tags": ["a", "b", None][: r.randrange(4)],
        "times": [f"{moment}T{hour}{zone}"] * r.randrange(3),
        "sub": r.choice([None, {}, {"x": 1, "y": "z", "at": f"{moment}T{hour}Z"}]),
        "unknown": [1, {"a": "b"}],
    }
    kept = {name: value for name, value in document.items() if r.random() < 0.9}
    return json.dumps(kept, ensure_ascii=r.random() < 0.5).encode()
