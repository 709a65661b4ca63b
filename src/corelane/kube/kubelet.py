"""The kubelet of one node over HTTPS: how to reach and trust it, its pods, and its configuration."""

import asyncio
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from typing import Final, Generic, TypeVar

import aiohttp
from msgspec import Raw

from corelane import input_files
from corelane.kube import objects
from corelane.kube.decode import UNDECODABLE, Listing, Malformed, decode_object, split_list
from corelane.kube.meta import Object
from corelane.kube.objects import KubeletConfiguration
from corelane.reasons import Code, Reason, sentence


class KubeletError(Exception):
    """A request that the kubelet did not answer, or answered with an error."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(sentence(reason))
        self.reason = reason


# Address, credentials and the authority that must sign the certificate. Files are read again when they
# change: client certificates and service account tokens are rotated while the agent runs.


PORT: Final = 10250


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
        self._versions: list[tuple[int, ...]] | None = None
        self._token = access.token
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates a request; none without a token."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def refresh(self) -> bool:
        """Read changed files again; return whether there were any. Blocks. Raises KubeletError."""
        access = self._access
        versions: list[tuple[int, ...]] = []
        for file in access.files:
            try:
                status = file.stat()
            except OSError as error:
                raise _unreadable(file, error) from None
            versions.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        if versions == self._versions:
            return False
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
        self.context, self._token = context, _token(access)
        self._versions = versions
        return True


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


T = TypeVar("T", bound=Object)

PODS: Final = "/pods"
CONFIGZ: Final = "/configz"
_RESOURCES: Final[Mapping[str, str]] = {PODS: "nodes/pods", CONFIGZ: "nodes/configz"}
"""Subresources of fine-grained kubelet authorization (KEP-2862): beta in 1.33, GA in 1.36."""
_MOST_BYTES: Final = 64 << 20
_KEEPALIVE: Final = 75.0
_DISABLED: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_UNTRUSTED: Final = (7, 18, 19, 20, 21, 30)
"""OpenSSL's codes of a certificate that no known authority signed (X509_V_ERR_*).

7 and 30: another authority of the same name did, as after a cluster was set up anew.
"""
_WRONG_NAME: Final = (62, 64)


class KubeletClient(Generic[T]):
    """Connections to one kubelet, whose pods are decoded as `kind`. Every request raises KubeletError."""

    def __init__(self, access: KubeletAccess, kind: type[T], *, seconds: float = 5.0) -> None:
        """`seconds` is the deadline of a request, from connecting to the end of the answer."""
        self.access = access
        self._seconds = seconds
        self._credentials = Credentials(access)
        self._refreshing = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._pods = PodList(kind)
        self._configuration: tuple[bytes, KubeletConfiguration] | None = None

    async def pods(self) -> Listing[T]:
        """List the pods under the kubelet; while nothing changes, the same object as before."""
        body = await self._get(PODS)
        try:
            return self._pods.read(body)
        except UNDECODABLE as error:
            raise self._error(Code.KUBELET_MALFORMED, PODS, str(error)) from None

    async def configuration(self) -> KubeletConfiguration:
        """Read the effective configuration; while nothing changes, the same object as before."""
        body = await self._get(CONFIGZ)
        if self._configuration is None or self._configuration[0] != body:
            try:
                self._configuration = body, objects.decode_kubelet_configuration(body)
            except UNDECODABLE as error:
                raise self._error(Code.KUBELET_MALFORMED, CONFIGZ, str(error)) from None
        return self._configuration[1]

    async def close(self) -> None:
        """Close the connections; the next request makes new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _get(self, path: str) -> bytes:
        await self._refresh()
        status, body = await self._request(path)
        if status == HTTPStatus.UNAUTHORIZED and await self._refresh():
            status, body = await self._request(path)
        if status != HTTPStatus.OK:
            if status == HTTPStatus.UNAUTHORIZED:
                raise self._error(Code.KUBELET_UNAUTHORIZED, path)
            if status == HTTPStatus.FORBIDDEN:
                raise self._error(Code.KUBELET_FORBIDDEN, path, _RESOURCES[path])
            if status in _DISABLED:
                raise self._error(Code.KUBELET_ENDPOINT_OFF, path, status)
            text = " ".join(body[:300].decode(errors="replace").split())
            raise self._error(Code.KUBELET_FAILED, path, status, text)
        return body

    async def _refresh(self) -> bool:
        async with self._refreshing:
            changed = await asyncio.to_thread(self._credentials.refresh)
            if changed:
                await self.close()
        return changed

    async def _request(self, path: str) -> tuple[int, bytes]:
        if self._session is None:
            self._session = _session(self._credentials.context, self._seconds)
        name = self.access.server_name or None
        try:
            async with self._session.get(
                self.access.url.rstrip("/") + path,
                headers=self._credentials.headers,
                server_hostname=name,
                allow_redirects=False,
            ) as response:
                chunks, size = [], 0
                async for chunk in response.content.iter_chunked(1 << 16):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > _MOST_BYTES:
                        why = f"longer than {_MOST_BYTES >> 20} MiB"
                        raise self._error(Code.KUBELET_MALFORMED, path, why)
                return response.status, b"".join(chunks)
        except TimeoutError:
            raise self._error(Code.KUBELET_SLOW, path, self._seconds) from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._untrusted(error.certificate_error) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = getattr(error, "os_error", None)
            why = (getattr(cause, "strerror", None) or str(error) or type(error).__name__).strip()
            raise self._error(Code.KUBELET_UNREACHABLE, path, why) from None

    def _untrusted(self, error: Exception) -> KubeletError:
        code = getattr(error, "verify_code", 0)
        why = getattr(error, "verify_message", "") or str(error)
        if code in _UNTRUSTED:
            authority = str(self.access.ca_file or "")
            return KubeletError(Reason(Code.KUBELET_CERTIFICATE_UNTRUSTED, (self.access.url, why, authority)))
        if code in _WRONG_NAME:
            return KubeletError(Reason(Code.KUBELET_CERTIFICATE_NAME, (self.access.url, why)))
        return KubeletError(Reason(Code.KUBELET_CERTIFICATE_INVALID, (self.access.url, why)))

    def _error(self, code: Code, path: str, *values: object) -> KubeletError:
        return KubeletError(Reason(code, (self.access.url, path, *values)))


def _session(context: ssl.SSLContext, seconds: float) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=context, limit=4, keepalive_timeout=_KEEPALIVE)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=seconds),
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
        trust_env=False,
    )


def _digest(data: bytes | Raw) -> bytes:
    return blake2b(data, digest_size=16).digest()


class PodList(Generic[T]):
    """The last list that was read, decoded pod by pod and only where it changed.

    The kubelet lists its pods in random order and has no resourceVersion of the list, so every item is
    compared by a digest of its bytes: a pod that did not change is the same object as before.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._body = b""
        self._decoded: dict[bytes, T | Malformed] = {}
        self._listing: Listing[T] = Listing((), "")

    def read(self, body: bytes) -> Listing[T]:
        """Decode a list, pods by namespace and name; while nothing changes, return the same object again.

        A malformed pod is named in the result and spoils no other. Raises ValueError for a body
        that is not a list of objects; the last list then stays.
        """
        if (digest := _digest(body)) == self._body:
            return self._listing
        items = {_digest(raw): raw for raw in split_list(body)[1]}
        if items.keys() != self._decoded.keys() or not self._body:
            decoded = {key: self._decoded.get(key) or decode_object(self._kind, items[key]) for key in items}
            pods = [pod for pod in decoded.values() if not isinstance(pod, Malformed)]
            malformed = sorted((pod for pod in decoded.values() if isinstance(pod, Malformed)), key=str)
            pods.sort(key=lambda pod: (*pod.key, pod.metadata.uid))
            self._decoded, self._listing = decoded, Listing(tuple(pods), "", tuple(malformed))
        self._body = digest
        return self._listing
