"""The wire cannot change by accident: every declaration has its frames on file.

After a change that is meant, `python -m tests.support.example_requests` writes the files anew; their diff is
the change of the wire.
"""

import pytest
from tests.support.example_requests import (
    GOLDEN,
    OPAQUE,
    REFERENCE_PAGE,
    example_answer,
    example_request,
    golden_files,
    stored_frames,
)
from tests.support.many_cases import for_each

from pyromq.protocol.catalogue import CATALOGUE, Declaration, decode_answer, decode_request
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.requests.reference import markdown

DECLARATIONS = for_each("declaration", CATALOGUE.values(), named=lambda each: each.name)
FORMS = pytest.mark.parametrize("form", HeaderForm, ids=lambda form: form.name)
STORED = stored_frames()


def _stored(declaration: Declaration, direction: str, form: HeaderForm) -> Frame:
    reader = FrameReader()
    (frame,) = reader.feed(STORED[declaration.name, direction, form.name])
    assert reader.buffered_bytes == 0
    assert frame.opaque == OPAQUE
    return frame


def test_encoding_the_examples_gives_the_bytes_on_file() -> None:
    assert golden_files() == {path.name: path.read_text("ascii") for path in GOLDEN.glob("*.txt")}


@FORMS
@DECLARATIONS
def test_requests_on_file_are_read_as_the_examples(declaration: Declaration, form: HeaderForm) -> None:
    frame = _stored(declaration, "request", form)
    assert frame.code == declaration.code
    assert decode_request(declaration, frame) == example_request(declaration)


@FORMS
@DECLARATIONS
def test_answers_on_file_are_read_as_the_examples(declaration: Declaration, form: HeaderForm) -> None:
    frame = _stored(declaration, "answer", form)
    assert frame.is_response
    assert decode_answer(declaration.request_type, frame) == example_answer(declaration)


def test_the_reference_page_of_requests_is_fresh() -> None:
    assert REFERENCE_PAGE.read_text("utf-8") == markdown()
