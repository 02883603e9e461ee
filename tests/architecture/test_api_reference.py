"""The reference of the public face says what the source says, and leaves nothing out."""

from tools.api_reference import FOLDER, pages

import pyromq
from pyromq import aio, testing


def test_the_reference_of_the_public_face_is_fresh() -> None:
    written = {str(page.relative_to(FOLDER)): page.read_text() for page in FOLDER.rglob("*.md")}
    assert written == pages(), "run `python -m tools.api_reference`"


def test_everything_public_is_in_it() -> None:
    text = "".join(page.read_text() for page in FOLDER.rglob("*.md"))
    for module in (pyromq, testing):
        for name in module.__all__:
            assert f"`{module.__name__}.{name}`" in text
    for name in aio.__all__:
        assert f"`pyromq.aio.{name}`" in text or f"`pyromq.{name}`" in text


def test_both_faces_have_the_same_clients() -> None:
    clients = {name for name in aio.__all__ if name.endswith(("Producer", "Consumer"))}
    assert clients <= set(pyromq.__all__)
