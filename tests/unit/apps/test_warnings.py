"""A server that lets anyone in says so at its start, and says where."""

import logging
from pathlib import Path

import pytest

from pyromq.apps.launching import warn_if_open
from pyromq.nameserver.settings import NameServerSettings


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_it_names_every_address_that_others_reach(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_open(NameServerSettings(), [("0.0.0.0", 10911), ("::1", 1), ("fd00::1", 10909)])
    [warning] = warnings(caplog)
    assert warning.startswith(
        "ANYONE who reaches 0.0.0.0:10911 or [fd00::1]:10909 may read, write and delete"
    )
    assert "bindAddress=127.0.0.1" in warning


def test_on_loopback_there_is_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_open(NameServerSettings(), [("127.0.0.1", 10911), ("::1", 10909), ("::ffff:127.0.0.1", 1)])
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("mode", "auth", "is_open"),
    [
        ("permissive", "require", True),
        ("enforcing", "optional", True),
        ("enforcing", "none", True),
        ("enforcing", "require", False),
    ],
)
def test_certificates_that_clients_must_have_keep_strangers_out(
    caplog: pytest.LogCaptureFixture, mode: str, auth: str, is_open: bool
) -> None:
    file = Path("some.pem")
    settings = NameServerSettings(
        tls_mode=mode,  # type: ignore[arg-type]
        tls_client_auth=auth,  # type: ignore[arg-type]
        tls_cert_path=file,
        tls_key_path=file,
        tls_trust_cert_path=file,
    )
    warn_if_open(settings, [("0.0.0.0", 9876)])
    assert bool(warnings(caplog)) is is_open
