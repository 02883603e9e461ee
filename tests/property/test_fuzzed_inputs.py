"""What fuzzing starts from, and what it has found: compiled code reads it as interpreted code does.

`make fuzz-native` looks for new ones, under sanitizers.
"""

from pathlib import Path

import pytest

from pyromq.compiled import WHY, twin

if twin("broker.fast_path") is None:
    pytest.skip(f"nothing to compare: {WHY}", allow_module_level=True)

from tests.native_fuzz.targets import TARGETS

from pyromq.protocol.framing import MAX_HEADER_BYTES

FOUND = Path(__file__).resolve().parents[1] / "native_fuzz" / "found"


@pytest.mark.parametrize("target", TARGETS)
def test_what_fuzzing_starts_from_is_read_alike(target: str) -> None:
    for data in TARGETS[target].seeds():
        TARGETS[target].fuzz(data)


@pytest.mark.parametrize(
    "path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_what_fuzzing_has_found_is_read_alike(path: Path) -> None:
    TARGETS[path.parent.name].fuzz(path.read_bytes())


def test_a_header_that_the_general_path_finds_too_long_is_declined() -> None:
    headers = twin("protocol.headers")
    assert headers is not None
    header = b'{"code":10,"extFields":{"n":"%s"},"version":1}'
    longest = header % (b"x" * (MAX_HEADER_BYTES - len(header % b"")))
    assert headers.fields_of(longest, False) is not None
    assert headers.fields_of(longest.replace(b"n", b"nn", 1), False) is None
