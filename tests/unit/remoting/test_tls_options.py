"""One rule for those who can only say whether, and whom to trust."""

from pathlib import Path

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
