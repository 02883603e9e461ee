"""The logging file of a quiet session: nobody else can foresee its name, or write or read it."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from pyromq.spark.pipelines import quiet


def test_the_logging_file_is_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (f"pyromq-log4j2-{os.getuid()}.properties", f"pyromq-log4j2-{os.getuid()}.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    quiet._logging_file.cache_clear()
    try:
        path = quiet._logging_file()
        assert quiet._logging_file() == path, "one for each process"
    finally:
        quiet._logging_file.cache_clear()
    assert victim.read_text() == "precious"
    assert path.parent == tmp_path
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "rootLogger.level = error" in path.read_text()
