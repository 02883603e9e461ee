"""What servers tell of their protection."""

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from tests.support.certificates import Authority

from pyromq.remoting.security_metrics import certificate_end


def test_the_end_of_a_certificate_is_read_from_its_file(tmp_path: Path) -> None:
    for is_expired in (False, True):
        pem = Authority(tmp_path).issue("broker", is_expired=is_expired).certificate.read_text()
        wanted = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
        assert datetime.fromtimestamp(certificate_end(pem), UTC) == wanted
