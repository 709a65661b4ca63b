"""Where the kubelet listens, the credentials sent to it, and the authority that must sign its certificate.

Files are read again when they change: client certificates and service account tokens are rotated while the
agent runs.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corelane import input_files
from corelane.kube.kubelet.errors import KubeletError
from corelane.reasons import Code, Reason

PORT: Final = 10250
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class KubeletAccess:
    """How to reach one kubelet. Without `ca_file` the system's authorities apply.

    `token_file` precedes `token`. `server_name` is the name in the kubelet's certificate if the URL's host is
    another. `insecure` skips the check of the certificate: whoever answers then gets the token.
    """

    url: str = f"https://127.0.0.1:{PORT}"
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    token: str = ""
    server_name: str = ""
    insecure: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are configured, in a fixed order."""
        named = (self.ca_file, self.certificate_file, self.key_file, self.token_file)
        return tuple(file for file in named if file is not None)


class Credentials:
    """Certificates and token in their current version; `refresh` reads changed files."""

    def __init__(self, access: KubeletAccess) -> None:
        self._access = access
        self._versions: tuple[tuple[int, ...], ...] | None = None
        self._token = access.token
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates a request; none without a token."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def refresh(self) -> bool:
        """Read changed files again; return whether there were any. Blocks. Raises KubeletError."""
        versions = tuple(map(_version, self._access.files))
        if versions == self._versions:
            return False
        self.context, self._token = _context(self._access), _token(self._access)
        self._versions = versions
        return True


def _version(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError as error:
        raise _unreadable(file, error) from None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _unreadable(file: Path, error: OSError) -> KubeletError:
    why = os.strerror(error.errno) if error.errno else str(error)
    return KubeletError(Reason(Code.KUBELET_CREDENTIALS_UNREADABLE, (str(file), why)))


def _token(access: KubeletAccess) -> str:
    if access.token_file is None:
        return access.token
    try:
        token = input_files.read(access.token_file, regular=True).decode().strip()
    except OSError as error:
        raise _unreadable(access.token_file, error) from None
    except UnicodeDecodeError:
        token = ""
    if not token.isprintable() or not token.isascii() or not token:
        values = (str(access.token_file), "empty" if not token else "not a token")
        raise KubeletError(Reason(Code.KUBELET_CREDENTIALS_UNREADABLE, values))
    return token


def _context(access: KubeletAccess) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if access.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif access.ca_file is None:
        context.load_default_certs()
    else:
        with _reading(access.ca_file):
            input_files.read(access.ca_file, regular=True)  # OpenSSL waits for a pipe
            context.load_verify_locations(access.ca_file)
    if access.certificate_file is not None:
        with _reading(access.certificate_file):
            for file in filter(None, (access.certificate_file, access.key_file)):
                input_files.read(file, regular=True)
            context.load_cert_chain(access.certificate_file, access.key_file)
    return context


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raise KubeletError for a file that is not a certificate, or not with this key."""
    try:
        yield
    except ssl.SSLError as error:
        why = f"not a PEM certificate with its key ({error.reason or error})"
        raise KubeletError(Reason(Code.KUBELET_CREDENTIALS_UNREADABLE, (str(file), why))) from None
    except OSError as error:
        raise _unreadable(file, error) from None
