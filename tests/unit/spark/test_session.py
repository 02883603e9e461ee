"""Settings of a session that depend on the machine."""

import tempfile

import pytest

from pyromq.spark.session import _sockets


@pytest.mark.parametrize(("place", "enabled"), [("/tmp", "true"), ("/tmp/" + "deep/" * 15, "false")])
def test_unix_sockets_are_used_where_their_names_are_short_enough(
    place: str, enabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With longer ones the session would not start."""
    monkeypatch.setattr(tempfile, "tempdir", place)
    assert _sockets() == {"spark.python.unix.domain.socket.enabled": enabled}
