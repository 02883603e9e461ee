import gzip
import hashlib
import re
import tomllib
from importlib import resources
from pathlib import Path

from tests.support.places import ROOT

from pyromq.console.static_files import StaticFiles

CONSOLE = Path(str(resources.files("pyromq.console")))
VENDOR = CONSOLE / "static" / "vendor"


def test_what_others_wrote_is_unchanged_and_listed() -> None:
    packages = tomllib.loads((VENDOR / "VENDOR.toml").read_text())["package"]
    listed = {each["name"]: each["sha256"] for package in packages for each in package["file"]}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "VENDOR.toml"
    }
    assert found == listed
    for package in packages:
        assert package["licence"]
        assert package["integrity"].startswith("sha512-")


def test_pages_load_nothing_from_elsewhere_and_have_nothing_inline() -> None:
    foreign = re.compile(r"(?:src|href|action)=[\"']?(?:https?:)?//", re.IGNORECASE)
    inline = re.compile(r"\bon[a-z]+=|<style|<script(?![^>]*\bsrc=)|\bstyle=|javascript:", re.IGNORECASE)
    for path in CONSOLE.rglob("*.html"):
        text = path.read_text()
        assert not foreign.search(text), path
        assert not inline.search(text), path
    for path in (CONSOLE / "static").glob("*.*"):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path
        assert "https://" not in text, path


def test_no_template_goes_around_the_escaping() -> None:
    for path in CONSOLE.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", text), path
    for path in CONSOLE.rglob("*.py"):
        text = path.read_text()
        assert "Markup(" not in text, path


def test_names_have_a_hash_of_the_content_and_pages_need_one_script_and_one_style() -> None:
    files = StaticFiles()
    assert re.fullmatch(r"console\.[0-9a-f]{12}\.css", files.addresses["console.css"])
    joined = files._by_address[files.addresses["console.js"]]
    parts = [(VENDOR / name).read_bytes() for name in ("htmx.min.js", "hx-sse.min.js")]
    assert joined.content == b";\n".join([*parts, (CONSOLE / "static" / "app.js").read_bytes()])
    assert gzip.decompress(joined.packed) == joined.content
    layout = (CONSOLE / "templates" / "layout.html").read_text()
    assert re.findall(r"static\['([^']+)'\]", layout) == [
        "favicon.svg",
        "console.css",
        "console.js",
        "uPlot.iife.min.js",
    ]


def test_the_package_has_every_file_of_the_console() -> None:
    root = CONSOLE.parent
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "pyromq"
    ]
    packed = {path for pattern in listed for path in root.glob(pattern)}
    found = {path for path in CONSOLE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert found - packed == set()
