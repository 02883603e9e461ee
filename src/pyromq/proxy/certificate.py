"""A certificate that is made at the start, for clients that use TLS and check nothing: most do by default."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyromq.errors import ConfigError

_DAYS = 3650


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate and its key; returns both paths."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigError(
            "tlsTestModeEnable",
            True,
            "the package cryptography (pip install 'pyromq[grpc]'), or tlsCertPath and tlsKeyPath",
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pyromq proxy")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = directory / "proxy.crt", directory / "proxy.key"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encoded)
    return certificate_path, key_path
