"""Certificates for tests: an authority and what it signs. Created for each run; nothing is kept.

The library for it, cryptography, is installed because moto needs it.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority; `file` is what clients trust."""

    file: Path
    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    def server_context(self, host: str) -> ssl.SSLContext:
        """For a server of that name or address, with a certificate from this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host_name(host)])
        certificate = (
            _builder(_named(host), self.name, key.public_key())
            .add_extension(names, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        both = self.file.with_name(f"{host}.pem")
        both.write_bytes(_key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        return context


def new_authority(directory: Path) -> Authority:
    directory.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("Test authority")
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = directory / "authority.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(file, name, key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
