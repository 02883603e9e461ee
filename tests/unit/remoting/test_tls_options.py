"""One rule for those who can only say whether, and whom to trust."""

from pathlib import Path
from typing import Any

import pytest

from pyromq.remoting.tls import TlsOptions

TRUST = Path("ca.pem")


@pytest.mark.parametrize(
    ("is_wanted", "trust", "choice"),
    [
        (False, None, None),
        (True, None, TlsOptions()),
        (False, TRUST, TlsOptions(trust_path=TRUST, verify=True)),
        (True, "ca.pem", TlsOptions(trust_path=TRUST, verify=True)),
    ],
)
def test_certificates_are_checked_once_someone_says_whom_to_trust(
    is_wanted: bool, trust: Path | str | None, choice: TlsOptions | None
) -> None:
    assert TlsOptions.chosen(is_wanted, trust) == choice


def test_a_client_that_has_certificates_to_trust_verifies_unless_it_may_not() -> None:
    assert TlsOptions(trust_path=TRUST).verify is True
    assert TlsOptions(trust_path=TRUST, verify=False).verify is False
    assert TlsOptions().verify is False


def test_paths_may_be_text() -> None:
    given: Any = {"trust_path": "ca.pem", "certificate_path": "me.pem", "key_path": "me.key"}
    assert TlsOptions(**given) == TlsOptions(
        trust_path=TRUST, certificate_path=Path("me.pem"), key_path=Path("me.key")
    )
