"""One value of a document as one type of Spark, or `Unfit`.

Numbers with a point or an exponent stay text until their type is known.
"""

import json
import math
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any

import pyarrow as pa

from pyromq.spark.from_json import times
from pyromq.spark.from_json.unfit import Unfit

Fit = Callable[[Any], Any]
"""From a value of a document to what Arrow takes. Times and days are numbers for it."""

MOST_DIGITS = 1000
"""Longer numbers are mistakes of the text."""

_DIGITS = Context(prec=76)
_WIDEST_BYTE = 255
_NO_NUMBERS: Mapping[str, float] = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?0*\d{1,10})?")
_BASE64 = re.compile(r"(?:[\0-\x20]*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==))*[\0-\x20]*")
_QUAD = re.compile(r"[A-Za-z0-9+/=]{4}")
_LONGS = 2**63


class Number(str):
    """A number with a point or an exponent, or NaN: as it is written."""

    __slots__ = ()


def scalar_fit(type_: pa.DataType, zone: times.Zone) -> Fit:
    types = pa.types
    if types.is_boolean(type_):
        return _boolean
    if types.is_integer(type_):
        return _byte if type_.bit_width == 8 else _integer(type_.bit_width)
    if types.is_float32(type_):
        return _float
    if types.is_floating(type_):
        return _double
    if types.is_decimal(type_):
        return _decimal(type_.precision, type_.scale)
    if types.is_binary(type_):
        return lambda value: bytes_of(_text(value))
    if types.is_timestamp(type_):
        return _moment(zone) if type_.tz is not None else lambda value: times.local_moment(_some_text(value))
    if types.is_date(type_):
        return lambda value: times.day(_some_text(value))
    return text_of


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit(f"{value!r} is neither true nor false")
    return value


def _integer(bits: int) -> Fit:
    most = 2 ** (bits - 1)

    def integer(value: Any) -> int:
        if type(value) is not int or not -most <= value < most:
            raise Unfit(f"{value!r} is not a whole number of {bits} bits")
        return value

    return integer


def _byte(value: Any) -> int:
    if type(value) is not int or not -128 <= value <= _WIDEST_BYTE:
        raise Unfit(f"{value!r} is not a whole number of 8 bits")
    # java: bytes up to 255 are taken, and are negative then
    return (value + 128) % 256 - 128


def _double(value: Any) -> float:
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    if not isinstance(value, Number):
        raise Unfit(f"{value!r} is not a number")
    return float(value)


def _float(value: Any) -> float:
    """Rounded once: a double just between two floats is moved to the side where the number lies."""
    double = _double(value)
    if not math.isfinite(double) or not double:
        return double
    mantissa = math.frexp(double)[0] * 2**24
    if abs(mantissa % 1) == 0.5 and isinstance(value, int | Number):
        exact = Decimal(value)
        if exact != Decimal(double):
            return math.nextafter(double, math.inf if exact > Decimal(double) else -math.inf)
    return double


def _decimal(precision: int, scale: int) -> Fit:
    unit, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)

    def decimal(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Unfit(f"{value!r} is not a decimal number")
        if isinstance(value, str):
            written = value if isinstance(value, Number) else value.replace(",", "")
            if _DECIMAL.fullmatch(written) is None:
                raise Unfit(f"{value!r} is not a decimal number")
            value = written
        try:
            rounded = Decimal(value).quantize(unit, ROUND_HALF_UP, _DIGITS)
            is_small = rounded.copy_abs() < limit  # abs() would round to the digits of Python's context
        except DecimalException:
            is_small = False
        if not is_small:
            raise Unfit(f"{value!r} has more than {precision} digits")
        return rounded

    return decimal


def _moment(zone: times.Zone) -> Fit:
    def moment(value: Any) -> int:
        if type(value) is int and -_LONGS <= value < _LONGS:
            # java: the product is cut to 64 bits
            return (value * times.MICROS + _LONGS) % (2 * _LONGS) - _LONGS
        return times.moment(_some_text(value), zone)

    return moment


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, Number):
        raise Unfit(f"{value!r} is not text")
    return value


def _some_text(value: Any) -> str:
    if not (text := _text(value)):
        raise Unfit("an empty text")
    return text


def bytes_of(text: str) -> bytes:
    if _BASE64.fullmatch(text) is None:
        raise Unfit(f"{text[:100]!r} is not base64")
    return b"".join(a2b_base64(quad) for quad in _QUAD.findall(text))


def text_of(value: Any) -> str:
    """A text as it is; anything else as JSON."""
    if isinstance(value, str) and not isinstance(value, Number):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return written(value)


def written(value: Any) -> str:
    """JSON as Spark writes it again."""
    if isinstance(value, Number):
        double = _double(value)
        return java_double(double) if math.isfinite(double) else f'"{_NAMES[str(double)]}"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    # java: hexadecimal digits are capital letters, and characters beyond 16 bits are escaped
    return _ESCAPED.sub(_java_escape, quoted)


_ESCAPED = re.compile(r"\\u00[0-9a-f]{2}|[\ud800-\udfff\U00010000-\U0010ffff]")


def _java_escape(match: re.Match[str]) -> str:
    if len(match[0]) > 1:
        return "\\u" + match[0][2:].upper()
    units = match[0].encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def java_double(double: float) -> str:
    """As Java's `Double.toString`."""
    if not double:
        return "-0.0" if math.copysign(1, double) < 0 else "0.0"
    shown = repr(double)
    if float(two_digits := f"{double:.1e}") == double:
        shown = two_digits
    sign, digits_, exponent = Decimal(shown).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, digits_))
    point = len(digits) + exponent
    if not 1e-3 <= abs(double) < 1e7:
        text = f"{digits[0]}.{digits[1:] or '0'}E{point - 1}"
    elif point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[:point]:0<{point}}.{digits[point:] or '0'}"
    return f"-{text}" if sign else text
