"""A certificate for the embedded server, made once and kept in the data directory.

kubectl sends its token over TLS only, even to 127.0.0.1. The server therefore has a certificate, signed by
an authority that exists for this directory only and that the kubeconfig contains.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from corelane.kernel import files

_LIFE = datetime.timedelta(days=3650)
_RENEW_BEFORE = datetime.timedelta(days=30)
_NAMES = [
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
]


def server_context(directory: Path, now: datetime.datetime) -> tuple[ssl.SSLContext, bytes]:
    """Return a context for a server on loopback, and the authority's certificate (PEM) for its clients.

    Files are created when missing, unreadable or about to expire; keys have mode 0600.
    """
    authority, chain = directory / "ca.crt", directory / "server.pem"
    if not _good(authority, now):
        _make(authority, chain, now)
    try:
        return _context(chain), authority.read_bytes()
    except (OSError, ssl.SSLError):
        _make(authority, chain, now)
        return _context(chain), authority.read_bytes()


def _context(chain: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain)
    return context


def _good(authority: Path, now: datetime.datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(authority.read_bytes())
    except (OSError, ValueError):
        return False
    return certificate.not_valid_after_utc - now > _RENEW_BEFORE


def _make(authority: Path, chain: Path, now: datetime.datetime) -> None:
    """Create an authority, sign the server's certificate with it, and discard the authority's key."""
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
