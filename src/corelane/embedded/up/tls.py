"""A certificate for the embedded server, made once and kept in the data directory.

kubectl sends its token over TLS only, even to 127.0.0.1. The server therefore has a certificate, signed by
an authority that exists for this directory only and that the kubeconfig contains.
"""

from __future__ import annotations

import datetime
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from corelane.settings import SettingsError

_RENEW_BEFORE: Final = datetime.timedelta(days=30)
_SECONDS: Final = 60.0
_LIBRARY: Final = "cryptography"

if find_spec(_LIBRARY) is None:  # reported before the start, although it is loaded only when needed
    raise ModuleNotFoundError(f"No module named {_LIBRARY!r}", name=_LIBRARY)


def server_context(
    directory: Path, now: datetime.datetime, note: Callable[[str], None] = lambda _: None
) -> tuple[ssl.SSLContext, bytes]:
    """Return a context for a server on loopback, and the authority's certificate (PEM) for its clients.

    Files are created when missing, damaged, not valid now or about to expire, or not of each other; `note`
    takes why. Keys have mode 0600. Raises SettingsError if they cannot be.
    """
    authority, chain = directory / "ca.crt", directory / "server.pem"
    if fault := _fault(authority, chain, now):
        new = not authority.exists() and not chain.exists()
        _make(authority, chain, now)
        if not new:
            note(
                f"{fault}: both files were created anew; the kubeconfig has the new authority, clients with "
                "a copy of the old one fail with `certificate signed by unknown authority` until they read it"
            )
    return _context(chain), authority.read_bytes()


def _context(chain: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain, password=lambda: "")  # an encrypted key is an error, not a question
    return context


def _fault(authority: Path, chain: Path, now: datetime.datetime) -> str:
    """Return why clients that trust the authority would not accept the server; "" if they would."""
    for path in (authority, chain):
        if not path.is_file():
            return f"{path}: {'not a file' if path.exists() else 'missing'}"
    path = authority
    try:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.load_verify_locations(authority)
        for certificate in client.get_ca_certs():
            if invalid := _invalid(certificate, now):
                return f"{authority}: {invalid}"
        path = chain
        server = _context(chain)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        here = client.wrap_bio(back, there, server_hostname="127.0.0.1")
        waiting = [here, server.wrap_bio(there, back, server_side=True)]
        while waiting:
            end = waiting.pop(0)
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(end)
        peer = here.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        return f"{chain}: not accepted by clients that trust {authority} ({error.verify_message})"
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        return f"{path}: {_cause(error)}"
    invalid = _invalid(peer, now)
    return f"{chain}: {invalid}" if invalid else ""


def _cause(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _invalid(certificate: Mapping[str, Any], now: datetime.datetime) -> str:
    """Return why a certificate is not valid now, or not for much longer."""
    begins, ends = (ssl.cert_time_to_seconds(str(certificate[name])) for name in ("notBefore", "notAfter"))
    if begins > now.timestamp():
        return f"not valid before {certificate['notBefore']}, now is {now:%b %d %H:%M:%S %Y} GMT"
    if ends - now.timestamp() <= _RENEW_BEFORE.total_seconds():
        return f"not valid after {certificate['notAfter']}"
    return ""


def _make(authority: Path, chain: Path, now: datetime.datetime) -> None:
    """Create the files in a process of its own, unless this one has loaded the library anyway.

    It takes 10 MB of memory, and is needed once in ten years. Raises SettingsError.
    """
    for path in (authority, chain):
        if path.is_dir():
            raise SettingsError(
                f"{path}: a directory in place of a certificate; remove it: a new one is created"
            )
    if _LIBRARY in sys.modules:
        from corelane.embedded.up import certificates

        certificates.make(authority, chain, now)
        return
    arguments = (str(authority), str(chain), now.isoformat())
    command = [sys.executable, "-P", "-m", "corelane.embedded.up.certificates", *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingsError(f"{authority.parent}: certificates were not created: {error}") from error
    if ended.returncode:
        cause = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        raise SettingsError(f"{authority.parent}: certificates were not created: {cause}")
