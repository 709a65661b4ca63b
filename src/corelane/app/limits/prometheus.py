"""Prometheus' HTTP interface: instant queries, and whatever goes wrong with them in one line."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = ["Answer", "PrometheusError", "Series", "Server", "bearer", "number", "query"]

_LARGEST: Final = 1 << 28
_PIECE: Final = 1 << 20
_SHOWN: Final = 200


class PrometheusError(Exception):
    """Prometheus did not answer, or not with what was asked for; the message has the URL."""


@dataclass(frozen=True, slots=True)
class Server:
    """How Prometheus is reached. `token` is sent as a bearer token where there is one."""

    url: str
    token: str = ""
    timeout_seconds: float = 30.0
    """For a query as a whole, however slowly its answer comes."""


class Series(msgspec.Struct, frozen=True):
    """A series of a result: samples over time, or the one sample of an instant."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True):
    result: list[Series] = []


class Answer(msgspec.Struct, frozen=True):
    """What Prometheus says. With `warnings` the result may be partial (Thanos, remote reads)."""

    status: str = ""
    error: str = ""
    data: _Data = _Data()
    warnings: list[str] = []


def query(server: Server, text: str) -> Answer:
    """One instant query. Raises PrometheusError."""
    body = _body(server, _request(server, text))
    try:
        answer = msgspec.json.decode(body, type=Answer)
    except msgspec.MsgspecError as error:
        raise PrometheusError(f"{server.url}: this is not Prometheus' answer: {error}") from None
    if answer.status != "success":
        raise PrometheusError(f"{server.url}: {answer.error or answer.status or 'no status'}")
    return answer


def number(server: Server, text: str) -> float:
    """A sample's value, which may be NaN. Raises PrometheusError."""
    try:
        return float(text)
    except ValueError:
        raise PrometheusError(f"{server.url}: a sample's value {text[:_SHOWN]!r} is no number") from None


def bearer(path: Path | None) -> str:
    """The token in a file, if one is named. Raises OSError; PrometheusError where no header can hold it."""
    if path is None:
        return ""
    found = path.read_bytes().strip()
    if not found or not all(0x20 < byte < 0x7F for byte in found):
        raise PrometheusError(f"{path}: holds no token: it must be one word of printable ASCII")
    return found.decode()


def _request(server: Server, text: str) -> urllib.request.Request:
    if not _is_address(server.url):
        raise PrometheusError(f"{server.url!r} is no address: write it as http://prometheus:9090")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    url = server.url.rstrip("/") + "/api/v1/query"
    form = urllib.parse.urlencode({"query": text}).encode()
    return urllib.request.Request(url, data=form, headers=headers)  # noqa: S310 - the scheme was checked


def _is_address(url: str) -> bool:
    """Whether it is one of HTTP's; urllib would open file: and ftp: as well."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class _Stay(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: the token is for the address that was given."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _body(server: Server, request: urllib.request.Request) -> bytes:
    opener = urllib.request.build_opener(_Stay)
    deadline = time.monotonic() + server.timeout_seconds
    try:
        with opener.open(request, timeout=server.timeout_seconds) as response:
            return _read(server, response, deadline)
    except urllib.error.HTTPError as error:
        raise PrometheusError(f"{server.url}: {_refused(error)}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise PrometheusError(f"{server.url}: {why}: {_hint(why)}") from None


def _read(server: Server, response: http.client.HTTPResponse, deadline: float) -> bytes:
    """All of the answer, in bounded time and memory."""
    pieces, size = [], 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > _LARGEST:
            raise PrometheusError(
                f"{server.url}: the answer is larger than {_LARGEST >> 20} MiB: "
                "choose a namespace, or a shorter window"
            )
        if time.monotonic() > deadline:
            raise PrometheusError(
                f"{server.url}: the answer took longer than {server.timeout_seconds:g} s: "
                "choose a namespace, or a shorter window"
            )
    return b"".join(pieces)


def _hint(why: Any) -> str:
    if isinstance(why, ssl.SSLCertVerificationError):
        return "name a file with the CA that signed it in SSL_CERT_FILE"
    return "is this Prometheus' address?"


_HINTS: Final = {
    401: ": it wants a token (--bearer-token-file), or another",
    403: ": this token may not query it",
}


def _refused(error: urllib.error.HTTPError) -> str:
    with error:
        if 300 <= error.code < 400:
            where = error.headers.get("Location", "nowhere")[:_SHOWN]
            return f"HTTP {error.code}: it sends us to {where!r}: give the address of Prometheus itself"
        return f"HTTP {error.code}: {_said(error.read(_SHOWN * 8))}{_HINTS.get(error.code, '')}"


def _said(body: bytes) -> str:
    """The error in a refusal, from Prometheus' JSON or in whatever words a proxy has."""
    try:
        answer = msgspec.json.decode(body, type=Answer)
        return answer.error or answer.status
    except msgspec.MsgspecError:
        return " ".join(body.decode(errors="replace").split())[:_SHOWN] or "no reason given"
