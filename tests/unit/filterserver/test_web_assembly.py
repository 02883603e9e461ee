"""Modules need a runtime, which not every filter server has."""

import sys

import pytest

from pyromq.filterserver.exchange import BadFilter
from pyromq.filterserver.web_assembly import WebAssembly


def test_without_a_runtime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(BadFilter, match=r"pip install pyromq\[wasm\]"):
        WebAssembly(1 << 26)
