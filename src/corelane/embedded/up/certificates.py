"""Creates the certificates of `corelane up`: `python -m …certificates AUTHORITY CHAIN TIME`.

A process of its own, because cryptography takes 10 MB of memory, and is needed once in ten years.
"""

from __future__ import annotations

import datetime
import ipaddress
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from corelane.kernel import files

_LIFE: Final = datetime.timedelta(days=3650)
_NAMES: Final = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


def make(authority: Path, chain: Path, now: datetime.datetime) -> None:
    """Create an authority, sign the server's certificate with it, and discard the authority's key.

    `authority` gets its certificate, `chain` the server's key and certificate. Keys have mode 0600.
    Raises OSError.
    """
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _sign(_authority, _name("corelane loopback authority"), ca_key, None, ca_key, now)
    leaf = _sign(_server, _name("corelane"), key, ca, ca_key, now)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = leaf.public_bytes(serialization.Encoding.PEM)
    files.write_atomic(chain, private + pem, mode=0o600)
    files.write_atomic(authority, ca.public_bytes(serialization.Encoding.PEM), mode=0o600)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _authority(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    usage = _usage(key_cert_sign=True, crl_sign=True)
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).add_extension(
        usage, critical=True
    )


def _server(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
    )


def _usage(**granted: bool) -> x509.KeyUsage:
    every = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement"
        " key_cert_sign crl_sign encipher_only decipher_only"
    )
    return x509.KeyUsage(**dict.fromkeys(every.split(), False) | granted)


def _sign(
    extend: Callable[[x509.CertificateBuilder], x509.CertificateBuilder],
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    return extend(builder).sign(issuer_key, hashes.SHA256())


def main() -> None:
    try:
        make(Path(sys.argv[1]), Path(sys.argv[2]), datetime.datetime.fromisoformat(sys.argv[3]))
    except OSError as error:
        file = error.filename2 or error.filename or sys.argv[1]
        raise SystemExit(f"{file}: {error.strerror or error}") from error


if __name__ == "__main__":
    main()
