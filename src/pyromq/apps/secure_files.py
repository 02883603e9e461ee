"""Files that `pyromq standalone --secure` makes: passwords, a certificate, and the settings that use them.

Everything is in one directory that only its owner can read; the next start uses it again.
"""

import ipaddress
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Self

from pyromq.errors import ConfigError

ADMINISTRATOR = "admin"
BROKER: Mapping[str, Any] = {"ha_tls": True}
"""Only brokers of the cluster get the log."""
_SERVERS = "pyromq-servers"
_YEARS = 10


class SecureFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key_file = directory / "admin.properties"
        """The keys of the administrator, as clients and `mqadmin --key-file` read them."""
        self.certificate = directory / "server.pem"
        self.audit_log = directory / "audit.log"
        self._key = directory / "server.key"
        self._secrets = directory / "secrets.json"

    @classmethod
    def of(cls, store: Path) -> Self:
        """Those of the cluster with its data in `store`."""
        return cls(store / "security")

    def __repr__(self) -> str:
        return f"<SecureFiles {self.directory}>"

    def make(self, host: str) -> None:
        """Make what is missing; raises ConfigError without the package cryptography."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory.chmod(0o700)
        if not self._secrets.exists():
            secrets = {ADMINISTRATOR: token_urlsafe(24), _SERVERS: token_urlsafe(24)}
            self._write(
                self.key_file, f"AccessKey={ADMINISTRATOR}\nSecretKey={secrets[ADMINISTRATOR]}\n".encode()
            )
            self._write(self._secrets, json.dumps(secrets).encode())
        if not self.certificate.exists():
            certificate, key = _certificate(host)
            self._write(self._key, key)
            self._write(self.certificate, certificate)

    def settings(self) -> dict[str, Any]:
        """Settings of every server of the cluster; its brokers have BROKER as well."""
        secrets = json.loads(self._secrets.read_text())
        return {
            "deny_by_default": True,
            "require_full_signature": True,
            # One table of users for all servers of the cluster.
            "auth_config_path": self.directory,
            "first_user": json.dumps({"username": ADMINISTRATOR, "password": secrets[ADMINISTRATOR]}),
            "inner_credentials": json.dumps({"accessKey": _SERVERS, "secretKey": secrets[_SERVERS]}),
            "tls_mode": "enforcing",
            "tls_cert_path": self.certificate,
            "tls_key_path": self._key,
            "tls_enable": True,
            "tls_trust_cert_path": self.certificate,
            "tls_client_trust_cert_path": self.certificate,
            "tls_client_cert_path": self.certificate,
            "tls_client_key_path": self._key,
            "tls_client_auth_server": True,
        }

    def administrator_password(self) -> str:
        return str(json.loads(self._secrets.read_text())[ADMINISTRATOR])

    def _write(self, path: Path, content: bytes) -> None:
        fresh = path.with_name(path.name + ".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        fresh.replace(path)


def _certificate(host: str) -> tuple[bytes, bytes]:
    """A certificate that is its own authority, and its key, PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigError(
            "--secure",
            "",
            "the package cryptography (pip install 'pyromq[grpc]'), which makes the certificate",
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pyromq standalone")])
    now = datetime.now(UTC)
    alternatives: list[x509.GeneralName] = [x509.DNSName("localhost")]
    try:
        alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
    except ValueError:
        alternatives.append(x509.DNSName(host))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private
