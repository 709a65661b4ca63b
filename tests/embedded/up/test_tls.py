"""The certificates of `corelane up`, held against OpenSSL."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificates

from corelane.embedded.up import certificates, tls
from corelane.settings import SettingsError

NOW = datetime.now(UTC)
APART = """
import json, ssl, sys
from datetime import UTC, datetime
from pathlib import Path
from corelane.embedded.up import tls
context, authority = tls.server_context(Path(sys.argv[1]), datetime.now(UTC))
print(json.dumps([authority.decode(), sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def handshake(server: ssl.SSLContext, authority: bytes, name: str) -> None:
    """Connect a client that trusts the authority alone. Raises ssl.SSLError."""
    client = ssl.create_default_context(cadata=authority.decode())
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    )
    done: set[int] = set()
    while len(done) < len(ends):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass


def texts(directory: Path) -> list[bytes]:
    return [(directory / name).read_bytes() for name in ("ca.crt", "server.pem")]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_clients_that_trust_the_authority_accept_the_server(tmp_path: Path, name: str) -> None:
    handshake(*tls.server_context(tmp_path, NOW), name)


def test_clients_accept_no_other_name_and_no_other_authority(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    context, authority = tls.server_context(tmp_path, NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(context, authority, "example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, tls.server_context(tmp_path / "other", NOW)[1], "localhost")


def test_keys_are_for_the_owner_alone(tmp_path: Path) -> None:
    tls.server_context(tmp_path, NOW)
    assert (tmp_path / "server.pem").stat().st_mode & 0o777 == 0o600


def test_certificates_are_kept_until_thirty_days_before_their_end(tmp_path: Path) -> None:
    tls.server_context(tmp_path, NOW)
    before = texts(tmp_path)
    tls.server_context(tmp_path, NOW + timedelta(days=3650 - 31))
    assert texts(tmp_path) == before
    later = NOW + timedelta(days=3650 - 29)
    tls.server_context(tmp_path, later)
    assert all(old != new for old, new in zip(before, texts(tmp_path), strict=True))
    (ca,) = load_pem_x509_certificates((tmp_path / "ca.crt").read_bytes())
    assert ca.not_valid_after_utc > later + timedelta(days=3600)


@pytest.mark.parametrize("name", ["ca.crt", "server.pem"])
@pytest.mark.parametrize("content", [None, b"", b"\x00\xff", b"-----BEGIN CERTIFICATE-----\nx\n", "half"])
def test_missing_and_damaged_files_are_made_again(
    tmp_path: Path, name: str, content: bytes | str | None
) -> None:
    tls.server_context(tmp_path, NOW)
    path = tmp_path / name
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    handshake(*tls.server_context(tmp_path, NOW), "localhost")


def test_first_certificates_are_made_without_a_line(tmp_path: Path) -> None:
    lines: list[str] = []
    tls.server_context(tmp_path, NOW, lines.append)
    tls.server_context(tmp_path, NOW, lines.append)
    assert lines == []


@pytest.mark.parametrize(
    ("spoilt", "cause"),
    [
        (["ca.crt"], r"server\.pem: not accepted by clients that trust .*/ca\.crt"),
        (["server.pem"], r"server\.pem: not accepted by clients that trust .*/ca\.crt"),
        (["key"], r"server\.pem: key values mismatch"),
        (["ca.crt", "server.pem", "future"], r"ca\.crt: not valid before .* 2031 GMT, now is"),
        (["ca.crt", "server.pem", "past"], r"ca\.crt: not valid after "),
        (["encrypted"], r"server\.pem: "),
        (["pipe"], "not a file"),
    ],
)
def test_files_of_another_pair_or_another_time_are_made_again_and_the_cause_is_said(
    tmp_path: Path, spoilt: list[str], cause: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    tls.server_context(tmp_path, NOW)
    when = {"future": datetime(2031, 1, 1, 1, tzinfo=UTC), "past": NOW - timedelta(days=3651)}
    certificates.make(other / "ca.crt", other / "server.pem", when.get(spoilt[-1], NOW))
    key, found, rest = (tmp_path / "server.pem").read_text().partition("-----BEGIN CERTIFICATE-----")
    for name in {"ca.crt", "server.pem"}.intersection(spoilt):
        (tmp_path / name).write_bytes((other / name).read_bytes())
    if spoilt == ["key"]:
        foreign = (other / "server.pem").read_text().partition("-----BEGIN CERTIFICATE-----")[0]
        (tmp_path / "server.pem").write_text(foreign + found + rest)
    if spoilt == ["encrypted"]:
        secret = load_pem_private_key(key.encode(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
        )
        (tmp_path / "server.pem").write_text(secret.decode() + found + rest)
    if spoilt == ["pipe"]:
        (tmp_path / "ca.crt").unlink()
        os.mkfifo(tmp_path / "ca.crt")
    lines: list[str] = []
    handshake(*tls.server_context(tmp_path, NOW, lines.append), "127.0.0.1")
    assert len(lines) == 1
    assert re.search(cause, lines[0])
    assert "clients with a copy of the old one fail" in lines[0]


def test_a_process_without_the_library_has_certificates_made_apart(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", APART, str(tmp_path)], capture_output=True, text=True, check=True, timeout=180
    )
    authority, modules = json.loads(run.stdout)
    assert "cryptography" not in modules
    context, found = tls.server_context(tmp_path, NOW)
    assert found.decode() == authority
    handshake(context, found, "localhost")


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_LIBRARY", "not loaded")
    missing = tmp_path / "missing" / "more"
    with pytest.raises(SettingsError, match=f"{missing}: certificates were not created: .*No such file"):
        tls.server_context(missing, NOW)


@pytest.mark.parametrize("name", ["ca.crt", "server.pem"])
def test_a_directory_in_place_of_a_certificate_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(SettingsError, match=rf"/{name}: a directory in place of a certificate; remove it"):
        tls.server_context(tmp_path, NOW)
    (tmp_path / name).rmdir()
    handshake(*tls.server_context(tmp_path, NOW), "localhost")


def test_errors_of_the_apart_process_name_file_and_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_LIBRARY", "not loaded")
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError) as failed:
        tls.server_context(tmp_path / "file", NOW)
    assert "Errno" not in str(failed.value)
    assert re.search(r"/file/\.?server\.pem.*: Not a directory$", str(failed.value))


def test_what_is_made_has_an_authority_for_servers_only(tmp_path: Path) -> None:
    certificates.make(tmp_path / "ca.crt", tmp_path / "server.pem", NOW)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tmp_path / "ca.crt")
    (ca,) = context.get_ca_certs()
    assert ca["subject"] == ((("commonName", "corelane loopback authority"),),)
