"""An authority of a test's own, and certificates that it signs."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass
class Authority:
    """Signs certificates; each is a PEM file with its key."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str = "test authority") -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(name, name, key.public_key(), key, authority=True)
        return cls(name, key, certificate)

    def write(self, file: Path) -> Path:
        file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return file

    def issue(
        self, file: Path, common: str, *names: str, days: int = 1, groups: tuple[str, ...] = ()
    ) -> Path:
        """Write a certificate for these DNS names and addresses; it ends after `days`.

        To an API server `common` is a client's user name, and `groups` are its groups.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(common, self.name, key.public_key(), self.key, names, days=days, groups=groups)
        write_pair(file, key, certificate)
        return file


def self_signed(file: Path, common: str, *names: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    write_pair(file, key, _sign(common, common, key.public_key(), key, names))
    return file


def write_pair(file: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    file.write_bytes(_private(key) + certificate.public_bytes(serialization.Encoding.PEM))


def signing_key(file: Path) -> Path:
    """Write the RSA key that an API server signs service account tokens with."""
    file.write_bytes(_private(rsa.generate_private_key(65537, 2048)))
    return file


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _sign(common, issuer, public, key, names=(), *, authority=False, days=1, groups=()):
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(common, groups))
        .issuer_name(_name(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False
        )
    return builder.sign(key, hashes.SHA256())


def _name(common: str, groups: tuple[str, ...] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
