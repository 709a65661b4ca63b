"""A certificate for the embedded server, made once and kept in the data directory.

kubectl sends its token over TLS only, even to 127.0.0.1. The server therefore has a certificate, signed by
an authority that exists for this directory only and that the kubeconfig contains.
"""

from __future__ import annotations

import datetime
import ssl
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from corelane.app.settings_file import SettingsError

_RENEW_BEFORE: Final = datetime.timedelta(days=30)
_SECONDS: Final = 60.0
_LIBRARY: Final = "cryptography"

if find_spec(_LIBRARY) is None:  # reported before the start, although it is loaded only when needed
    raise ModuleNotFoundError(f"No module named {_LIBRARY!r}", name=_LIBRARY)


def server_context(directory: Path, now: datetime.datetime) -> tuple[ssl.SSLContext, bytes]:
    """Return a context for a server on loopback, and the authority's certificate (PEM) for its clients.

    Files are created when missing, unreadable or about to expire; keys have mode 0600. Raises SettingsError
    if they cannot be.
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
    """Whether the file has an authority's certificate that is valid for a while."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError):  # an SSLError is an OSError
        return False
    ends = [str(one["notAfter"]) for one in context.get_ca_certs()]
    return (
        bool(ends)
        and min(map(ssl.cert_time_to_seconds, ends)) - now.timestamp() > _RENEW_BEFORE.total_seconds()
    )


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
        from corelane.app.up import certificates

        certificates.make(authority, chain, now)
        return
    arguments = (str(authority), str(chain), now.isoformat())
    command = [sys.executable, "-m", "corelane.app.up.certificates", *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingsError(f"{authority.parent}: certificates were not created: {error}") from error
    if ended.returncode:
        cause = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        raise SettingsError(f"{authority.parent}: certificates were not created: {cause}")
