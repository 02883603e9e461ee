"""The floors of the house, checked where import-linter cannot: on the file tree itself."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pyromq"

FLOORS = [
    {"errors", "chance", "clock", "compiled", "disk_steps", "version"},
    {"filesystem"},
    {"config", "metrics", "object_stores"},
    {"protocol"},
    {"filtering", "http2", "security"},
    {"remoting", "store"},
    {"tier"},
    {"cluster"},
    {"broker", "nameserver", "controller", "client"},
    {"filterserver", "proxy", "tasks"},
    {"admin", "cloudevents", "django", "logging", "otel", "standalone"},
    {"aio"},
    {"celery", "cli", "console", "dramatiq", "faststream", "spark", "taskiq", "testing"},
    {"mcp"},
    {"apps"},
]
# Words that name a role in a framework and tell the reader nothing about the thing.
EMPTY_WORDS = ("manager", "impl", "util", "utils", "helper", "helpers", "factory", "processor", "common")


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_every_top_level_room_has_a_floor() -> None:
    known = set().union(*FLOORS) | {"__init__", "__main__"}
    rooms = {path.stem for path in SOURCE.glob("*.py")} | {
        path.parent.name for path in SOURCE.glob("*/__init__.py")
    }
    assert rooms <= known, f"no floor is known for {sorted(rooms - known)}"


def test_the_contracts_name_the_same_floors() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    declared = [{room.strip(" ()") for room in layer.split("|")} for layer in reversed(layers)]
    assert declared == FLOORS


def test_every_file_opens_with_the_rule_that_holds_in_it() -> None:
    assert not [path for path in modules() if not re.match(r'r?"""[\w`]', path.read_text("utf-8"))]


def test_no_file_or_class_is_named_after_a_role() -> None:
    classes = [
        (path, name)
        for path in modules()
        for name in re.findall(r"(?m)^\s*class (\w+)", path.read_text("utf-8"))
    ]
    assert not [path for path in modules() if path.stem.lower() in EMPTY_WORDS]
    assert not [name for name in classes if name[1].lower().endswith(EMPTY_WORDS)]


def test_lock_files_and_configuration_name_no_download_address() -> None:
    for name in ("constraints.txt", "pyproject.toml", "Makefile"):
        text = (ROOT / name).read_text()
        assert "http://" not in text
        assert "https://" not in text


def test_property_tests_say_their_number_of_examples_for_every_profile() -> None:
    literal = re.compile(r"max_examples=\d")
    fixed = [
        path.name for path in (ROOT / "tests").rglob("test_*.py") if literal.search(path.read_text("utf-8"))
    ]
    assert not fixed, f"max_examples=examples(n), of tests.support.chance, can be scaled: {fixed}"


def test_the_unit_tests_lie_in_the_folders_of_what_they_test() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    strange = [folder for folder in folders if not (SOURCE / folder / "__init__.py").exists()]
    assert not strange, f"src/pyromq has no folders {strange}"

    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    flat = [path.name for path in unit.glob("test_*.py") if path.stem.split("_")[1] in packages]
    assert not flat, f"these belong into the folder of their package: {flat}"
