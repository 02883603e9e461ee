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
    code = "from pyromq import compiled; print(compiled.twin('hashing'), compiled.WHY)"
    assert ask(code, PYROMQ_NATIVE="0") == "None turned off by PYROMQ_NATIVE=0"


def test_an_old_build_is_not_used(tmp_path: Path) -> None:
    package = tmp_path / "pyromq_native"
    package.mkdir()
    (package / "__init__.py").write_text("REVISION = 0")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom pyromq import compiled; print(compiled.WHY)"
    )
    expected = f"revision 0 is installed, {compiled.REVISION} is needed: install pyromq-native again"
    assert ask(code, PYROMQ_NATIVE="1", PYTHONPATH=str(tmp_path)) == expected


def test_both_distributions_know_the_same_revision() -> None:
    assert f"\nREVISION = {compiled.REVISION}\n" in (NATIVE / "pyromq_native" / "__init__.py").read_text()


@pytest.mark.parametrize("path", sorted(NATIVE.glob("*/*.pyx")), ids=lambda path: path.stem)
def test_every_compiled_module_has_types(path: Path) -> None:
    assert path.with_suffix(".pyi").exists()
