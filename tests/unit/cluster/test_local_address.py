"""Which address this machine tells others."""

import socket

import pytest

from pyromq.cluster.local_address import local_address


def test_without_any_route_the_address_is_found_by_name_or_is_the_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unreachable:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> "Unreachable":
            return self

        def __exit__(self, *_: object) -> None: ...
        def connect(self, _: object) -> None:
            raise OSError("network is unreachable")

    def unknown(_: str) -> str:
        raise OSError("unknown host")

    monkeypatch.setattr(socket, "socket", Unreachable)
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "10.4.4.4")
    assert local_address() == "10.4.4.4"
    monkeypatch.setattr(socket, "gethostbyname", unknown)
    assert local_address() == "127.0.0.1"
