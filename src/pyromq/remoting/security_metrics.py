"""Metrics of every server about its protection: refused requests, the end of its certificate."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyromq.metrics import Metrics

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


def register_security(metrics: Metrics, refused: Callable[[], int], certificate: Path | None) -> None:
    metrics.read_counter(
        "pyromq_refused_requests_total", "Requests that access control has refused since the start.", refused
    )
    if certificate is not None:
        metrics.gauge(
            "pyromq_certificate_end_seconds",
            "When the certificate of this server ends, in seconds since 1970; 0 if it cannot be read.",
            lambda: _end_of(certificate),
        )


def _end_of(path: Path) -> float:
    try:
        return certificate_end(path.read_text())
    except (OSError, ValueError, IndexError):
        return 0.0


def certificate_end(pem: str) -> float:
    """The end of the first certificate, in seconds since 1970; raises ValueError or IndexError."""
    first = pem[pem.index(_BEGIN) :].partition("-----END CERTIFICATE-----")
    certificate = _content(ssl.PEM_cert_to_DER_cert(first[0] + first[1] + "\n"))
    fields = _elements(_content(certificate))
    if fields[0][0] == _VERSION:
        fields = fields[1:]
    (_, _), (kind, end) = _elements(fields[3][1])  # after the serial number, the signature and the issuer
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(end.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _content(der: bytes) -> bytes:
    kind, content = _elements(der)[0]
    if kind != _SEQUENCE:
        raise ValueError("not a certificate")
    return content


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element of DER."""
    found, position = [], 0
    while position < len(der):
        tag, size, position = der[position], der[position + 1], position + 2
        if size & 0x80:
            width = size & 0x7F
            size, position = int.from_bytes(der[position : position + width]), position + width
        found.append((tag, der[position : position + size]))
        position += size
    return found
