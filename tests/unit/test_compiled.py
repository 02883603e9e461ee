"""Finding the compiled twins, and doing without them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT

from pyromq import compiled

NATIVE = ROOT / "native" / "src"


def ask(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_the_environment_turns_the_compiled_twins_off() -> None:
    code = "from pyromq import compiled; print(compiled.twin('store.fast_key_hash'), compiled.WHY)"
    assert ask(code, PYROMQ_NATIVE="0") == "None turned off by PYROMQ_NATIVE=0"


def reason(folder: Path, modules: dict[str, str], revision: object = compiled.REVISION) -> str:
    """Why a build is not used that consists of these modules."""
    package = folder / "pyromq_native"
    package.mkdir()
    (package / "__init__.py").write_text("" if revision is None else f"REVISION = {revision}")
    for name, content in modules.items():
        path = package.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(content)
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "import pyromq.broker.fast_path\n"
        "from pyromq import compiled\n"
        "print(compiled.twin('broker.fast_path'), compiled.IS_COMPILED, compiled.WHY)"
    )
    return ask(code, PYROMQ_NATIVE="1", PYTHONPATH=str(folder)).removeprefix("None False ")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(NATIVE / "pyromq_native").with_suffix("").parts)


COMPLETE = dict.fromkeys(compiled.MODULES, "")
RENAMED = {name: "" for name in compiled.MODULES if name != "broker.fast_path"} | {"broker.express": ""}


@pytest.mark.parametrize("revision", [0, None])
def test_an_old_build_is_not_used(tmp_path: Path, revision: object) -> None:
    why = reason(tmp_path, COMPLETE, revision)
    assert (
        why == f"revision {revision} is installed, {compiled.REVISION} is needed: install pyromq-native again"
    )


def test_a_build_with_missing_modules_is_not_used(tmp_path: Path) -> None:
    why = reason(tmp_path, RENAMED)
    assert (
        why
        == f"revision {compiled.REVISION} is installed without broker.fast_path: install pyromq-native again"
    )


@pytest.mark.parametrize(
    "content", ["raise ImportError('undefined symbol')", "raise ValueError('size changed')", "import nothing"]
)
def test_a_build_that_cannot_be_loaded_is_not_used(tmp_path: Path, content: str) -> None:
    why = reason(tmp_path, dict.fromkeys(compiled.MODULES, content))
    assert why.startswith(f"revision {compiled.REVISION} is installed, but ")
    assert why.endswith(": install pyromq-native again")


def test_every_compiled_module_is_looked_for() -> None:
    assert sorted(compiled.MODULES) == sorted(map(name_of, NATIVE.rglob("*.pyx")))


def test_both_distributions_know_the_same_revision() -> None:
    assert f"\nREVISION = {compiled.REVISION}\n" in (NATIVE / "pyromq_native" / "__init__.py").read_text()


@pytest.mark.parametrize("path", sorted(NATIVE.rglob("*.pyx")), ids=name_of)
def test_every_compiled_module_has_types(path: Path) -> None:
    assert path.with_suffix(".pyi").exists()
