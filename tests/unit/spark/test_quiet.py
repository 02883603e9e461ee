"""A quiet session: its logging file is its own, and a JVM that hangs up is not worth a word."""

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from pyspark.accumulators import AccumulatorUnixServer, UpdateRequestHandler

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


@pytest.mark.parametrize(("sent", "words"), [(b"", ""), (b"\0\0\0\x01\0\0\0\x01?", "UnpicklingError")])
def test_a_java_that_hangs_up_is_no_error_and_others_are_told(
    sent: bytes, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    quiet.hide_hang_ups()
    path = str(tmp_path / "socket")
    with AccumulatorUnixServer(path, UpdateRequestHandler) as server:
        with socket.socket(socket.AF_UNIX) as java:
            java.connect(path)
            java.sendall(sent)
        server.handle_request()
    told = capfd.readouterr().err
    assert words in told
    assert bool(told) == bool(words)
