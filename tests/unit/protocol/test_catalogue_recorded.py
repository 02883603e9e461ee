"""Frames that Java peers really sent: the declarations know every field in them."""

import json
from pathlib import Path
from typing import Any

from tests.support.many_cases import for_each
from tests.support.places import GOLDEN

from pyromq.protocol.catalogue import CATALOGUE, decode_answer, decode_request
from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import FrameReader

RECORDED = GOLDEN / "frames"
ENTRIES: list[dict[str, Any]] = json.loads((RECORDED / "index.json").read_text())
FILES = {path.name: path.read_bytes() for path in RECORDED.glob("*.bin")}

# Any request of a stream client carries it; it tells a proxy which door to use.
CROSS_CUTTING = {"ReqT"}


def _name(entry: dict[str, Any]) -> str:
    kind = f"answer-{entry['code']}" if entry["answer"] else "request"
    return f"{Path(entry['file']).stem}-{entry['server']}-{entry['request']}-{kind}"


def _frame(entry: dict[str, Any]) -> Frame:
    reader = FrameReader()
    (frame,) = reader.feed(FILES[entry["file"]][entry["at"] : entry["at"] + entry["length"]])
    return frame


@for_each("entry", ENTRIES, named=_name)
def test_headers_of_java_peers_are_read(entry: dict[str, Any]) -> None:
    frame = _frame(entry)
    assert (frame.code, frame.opaque, frame.flag, frame.version) == (
        entry["code"],
        entry["opaque"],
        entry["flag"],
        entry["version"],
    )
    # Binary cannot tell an empty text from an absent one.
    assert (frame.remark or "") == (entry["remark"] or "")
    assert frame.ext == {key: value for key, value in entry["ext"].items() if value or frame.form == 0}
    assert len(frame.body) == entry["body_length"]


@for_each("entry", [each for each in ENTRIES if not each["answer"]], named=_name)
def test_requests_of_java_peers_are_understood_to_the_last_field(entry: dict[str, Any]) -> None:
    declaration = CATALOGUE[entry["request"]]
    frame = _frame(entry)
    decode_request(declaration, frame)
    known = {wire_name for _, wire_name, _ in declaration.request_part.written}
    assert frame.ext.keys() <= known | CROSS_CUTTING
    assert declaration.request_part.has_body or not frame.body


@for_each(
    "entry",
    [each for each in ENTRIES if each["answer"] and each["code"] in CATALOGUE[each["request"]].accepts],
    named=_name,
)
def test_answers_of_java_peers_are_understood_to_the_last_field(entry: dict[str, Any]) -> None:
    declaration = CATALOGUE[entry["request"]]
    frame = _frame(entry)
    decode_answer(declaration.request_type, frame)
    assert frame.ext.keys() <= {wire_name for _, wire_name, _ in declaration.answer_part.written}
    assert declaration.answer_part.has_body or not frame.body
