"""Every page of the console has its pictures, wide and narrow, and the documentation shows them."""

import re
import struct
from urllib.parse import urlsplit

import pytest
from tests.support.places import ROOT
from tools.pictures import NARROW, OTHER_PICTURES, PICTURES, PICTURES_OF_PAGES, WIDE

from pyromq.console.all_pages import PAGES

WITHOUT = {"/c/{cluster}/topics/{topic}/messages/{id}"}
"""It looks like the same message at its place."""


def width_of(name: str) -> int:
    header = (PICTURES / f"{name}.png").read_bytes()[:24]
    assert header[12:16] == b"IHDR"
    (width,) = struct.unpack(">I", header[16:20])
    return int(width)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
def test_every_page_has_a_picture(size: dict[str, int]) -> None:
    taken = {
        urlsplit(below if below.startswith("/") else f"/c/default/{below}").path: name
        for name, below, _, _, its_size in PICTURES_OF_PAGES
        if its_size is size
    }
    for page in PAGES:
        if page.path not in WITHOUT:
            pattern = re.compile(re.sub(r"\\\{\w+(:int)?\\\}", "[^/]+", re.escape(page.path)))
            assert any(pattern.fullmatch(path) for path in taken), (
                f"tools.pictures has no picture of {page.path}"
            )
    for name in taken.values():
        assert width_of(name) == size["width"], name


def test_the_documentation_shows_every_picture() -> None:
    text = (ROOT / "docs" / "howto" / "console.md").read_text()
    wanted = {f"{name}.png" for name, *_ in (*PICTURES_OF_PAGES, *OTHER_PICTURES)}
    assert wanted == {path.name for path in PICTURES.glob("console-*.png")}
    assert wanted == set(re.findall(r"pictures/(console-[\w-]+\.png)", text))
