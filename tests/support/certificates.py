"""A certificate authority that lives as long as a test, and the files it writes."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class CertificateFiles:
    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a directory; `trust` is its own certificate."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self.trust = directory / "trust.pem"
        self._authority.cert_pem.write_to_path(self.trust)

    def issue(
        self, name: str, password: str | None = None, host: str = "", *, is_expired: bool = False
    ) -> CertificateFiles:
        """Write NAME.pem and NAME.key; issuing the same name again replaces both."""
        until = datetime.now(UTC) - timedelta(days=1) if is_expired else None
        issued = self._authority.issue_cert(host or f"{name}.example.org", common_name=name, not_after=until)
        files = CertificateFiles(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key = issued.private_key_pem.bytes()
        if password is not None:
            key = load_pem_private_key(key, None).private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
            )
        files.key.write_bytes(key)
        return files
