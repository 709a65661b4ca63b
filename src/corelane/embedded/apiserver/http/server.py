"""The embedded API server: `APIServer` binds to loopback, answers, and stops quickly."""

import asyncio
import hashlib
import ipaddress
import ssl
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from aiohttp import web

from corelane import prometheus, structured_log
from corelane.embedded.apiserver import api_requests, openapi, status_errors
from corelane.embedded.apiserver.api_requests import Query, Target
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.http import auth, handlers, metrics, responses
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.handlers import Request
from corelane.embedded.apiserver.http.pod_logs import LogSource
from corelane.embedded.apiserver.http.responses import Reply, Stream
from corelane.embedded.apiserver.openapi import discovery
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.database import FILE_NAME, Store
from corelane.embedded.apiserver.store.server_backend import Backend, describe
from corelane.embedded.apiserver.stored_objects import StoreError
from corelane.embedded.apiserver.write import pipeline
from corelane.embedded.apiserver.write.node_objects import NodeObjects
from corelane.kube.http_listener import HTTPListener

_OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_CHECKS = ("ping", "log", "etcd")
_SHUTDOWN = 1.0  # seconds for what is being answered

_log = structured_log.get_logger("corelane.embedded.apiserver")

R = TypeVar("R")


class APIServer:
    """A Kubernetes API server in this process.

    `data_dir` None keeps objects in memory only. `tokens` maps bearer tokens to users. `tls` serves HTTPS,
    without which kubectl sends no token. `port` 0 takes a free one; `url` says which, once started.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        tokens: Mapping[str, User],
        host: str = "127.0.0.1",
        port: int = 0,
        log_source: LogSource | None = None,
        default_scheduler: str = "corelane-scheduler",
        tls: ssl.SSLContext | None = None,
        prepare: Callable[[Backend], None] | None = None,
    ) -> None:
        """`prepare` may write objects before the first request.

        Raises ValueError for a host that is not loopback.
        """
        try:
            loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(f"API server: address {host!r} is not a loopback address; use 127.0.0.1 or ::1")
        self._data_dir = data_dir
        self._tokens = dict(tokens)
        self._host, self._port, self._tls = host, port, tls
        self._default_scheduler = default_scheduler
        self._log_source = log_source
        self._prepare = prepare
        self._metrics = metrics.RequestMetrics()
        self._store: Store | None = None
        self._context: handlers.Context | None = None
        self._runner: web.ServerRunner | None = None
        self._listener: HTTPListener | None = None
        self._chores: asyncio.Task[None] | None = None
        self.url = ""

    @property
    def kept_backup(self) -> Path | None:
        """Backup of a state file that was gone at the start."""
        return self._store.kept_backup if self._store else None

    def check_in_place(self) -> None:
        """Raise StoreError if the state file was deleted or replaced since the start."""
        if self._store:
            self._store.check_in_place()

    @property
    def log_source(self) -> LogSource | None:
        return self._log_source

    @log_source.setter
    def log_source(self, source: LogSource | None) -> None:
        """Set the source of pod logs; agents may start after the server."""
        self._log_source = source
        if self._context:
            self._context.log_source = source

    def node_objects(self) -> NodeObjects:
        """Return the objects of nodes whose agents run in this process; only of a started server."""
        assert self._context is not None
        return NodeObjects(self._context.backend)

    async def start(self) -> None:
        """Open the store, make the default objects, and listen. Raises StoreError or OSError."""
        path = self._data_dir / FILE_NAME if self._data_dir else None
        begun = time.time() if path else None
        self._store = await asyncio.to_thread(Store, path, describe, begun=begun)
        try:
            backend = Backend(self._store, self._default_scheduler)
            pipeline.make_default_objects(backend)
            if self._prepare:
                self._prepare(backend)
            self._store.group_commits(asyncio.get_running_loop().call_soon)
            self._context = handlers.Context(backend, self._log_source, self._tokens)
            self._runner = web.ServerRunner(responses.Connections(self._handle), shutdown_timeout=_SHUTDOWN)
            await self._runner.setup()
            assert self._runner.server is not None
            self._listener = HTTPListener("API server", self._runner.server, _log, self._tls)
            host, port = await self._listener.start(self._host, self._port)
            scheme = "https" if self._tls else "http"
            self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
            self._chores = asyncio.create_task(server_backend.keep_house(backend))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End watches, finish what is being answered, and close the store; takes at most a few seconds."""
        if self._chores:
            self._chores.cancel()
            await asyncio.gather(self._chores, return_exceptions=True)
            self._chores = None
        if self._context:
            for watch in tuple(self._context.watches):
                watch.end()
            self._context = None
        if self._listener:
            self._listener.stop()
        if self._runner:
            await self._runner.cleanup()
            self._runner = None
        if self._store:
            self._store.close()
            self._store = None

    async def answer(self, request: Request, user: User) -> Reply:
        """Answer a request that `user` makes in this process. A stream is counted when it begins."""
        target = api_requests.parse(request.path, request.method, request.query)
        with self._counted(request, target) as count:
            reply = await self._or_status(request, self._answer(request, target, user))
            count.code = 200 if isinstance(reply, Stream) else reply.status
            return reply

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer any request that came over HTTP."""
        target = api_requests.parse(request.path, request.method, request.query)
        with self._counted(request, target) as count:
            response = await self._or_status(request, self._sent(request, target))
            count.code = response.status
            return response

    @contextmanager
    def _counted(self, request: Request, target: Target) -> Iterator["_Count"]:
        """Count a request, by the code that is set meanwhile."""
        begun, count = time.monotonic(), _Count()
        self._metrics.begin(target)
        try:
            yield count
        finally:
            media = request.headers.get("Content-Type", "")
            self._metrics.end(target, request.query, media, count.code, time.monotonic() - begun)

    async def _or_status(self, request: Request, answer: Awaitable[R]) -> R | web.Response:
        """Return an answer; on any error the client gets a Status."""
        accept = request.headers.get("Accept")
        try:
            return await answer
        except StatusError as error:
            return responses.error_response(error, accept)
        except StoreError as error:
            _log.error("store failed", error=str(error))
            return responses.error_response(status_errors.internal(str(error)), accept)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the last resort
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            where = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            about = {"method": request.method, "path": request.path, "error": repr(error)}
            _log.error("request failed", **about, where=where)
            text = "Internal error occurred: the request failed; see the log of corelane up for the cause"
            fault = StatusError(500, "InternalError", text, {"causes": [{"message": "unexpected"}]})
            return responses.error_response(fault, accept)

    async def _sent(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Answer a request by the user of its token, and send a stream."""
        user = auth.authenticate(request.headers.get("Authorization"), self._tokens)
        if user is not auth.ANONYMOUS and self._listener:
            self._listener.prove(request.protocol)
        responses.ask_for_body(request)
        reply = await self._answer(request, target, user)
        if isinstance(reply, Stream):
            return await responses.send(request, reply)
        objects = target.is_resource and target.subresource != "log"
        return await responses.compress(request.headers, reply) if objects else reply

    async def _answer(self, request: Request, target: Target, user: User) -> Reply:
        auth.refuse_impersonation(request.headers)
        auth.authorize(user, target)
        if self._context is None:
            raise StatusError(503, "ServiceUnavailable", "the server is stopping")
        if target.is_resource:
            return await handlers.answer(self._context, request, target, user)
        if target.path == "/metrics":
            text = self._metrics.text(len(self._context.watches), self._context.backend.store.counts())
            return responses.data(text, prometheus.MEDIA_TYPE)
        return plain(request, target)


@dataclass(slots=True)
class _Count:
    code: int = 499
    """As where the client left before the answer."""


def plain(request: Request, target: Target) -> web.Response:
    """Answer a request that is not for a resource: discovery, OpenAPI, health. Raises StatusError."""
    document = _document(request, request.headers.get("Accept", ""))
    if document is None:
        raise status_errors.no_such_resource()
    if request.method not in {"GET", "HEAD"}:
        raise status_errors.method_not_allowed()
    return document


def _document(request: Request, accept: str) -> web.Response | None:
    path = request.path
    if path.startswith(("//", "/apis//")):
        return None
    if path.startswith("/openapi/"):
        described = _openapi_document(path, accept)
        return _unless_known(request, *described, {}) if described else None
    if checked := _health(path, request.query):
        return responses.text(checked)
    document = discovery.document(path, request.host)
    if document is None:
        return None
    if path.rstrip("/") in {"/api", "/apis"} and (form := responses.aggregated_discovery(accept)):
        body = wire.body(form, discovery.aggregated(request.path))
        return _unless_known(request, responses.aggregated_type(form), body, {"Cache-Control": "public"})
    form = responses.plain(accept)
    return responses.data(wire.body(form, document), form.media)


def _health(path: str, query: Query) -> str:
    """The text for `/healthz`, `/livez` or `/readyz`, "" where there is no such check."""
    root, slash, check = path.removeprefix("/").partition("/")
    if slash and not check:
        return ""
    if root not in {"healthz", "livez", "readyz"} or (check and check not in _CHECKS):
        return ""
    if check or not api_requests.flag(query, "verbose"):
        return "ok"
    lines = [f"[+]{name} ok" for name in _CHECKS]
    return "\n".join([*lines, f"{root} check passed", ""])


def _unless_known(request: Request, media: str, body: bytes, headers: dict[str, str]) -> web.Response:
    """A document with its tag, or 304 for a client that has the tag."""
    headers = headers | {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "Vary": "Accept"}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return responses.data(b"", media, 304, headers)
    return responses.data(body, media, headers=headers)


def _openapi_document(path: str, accept: str) -> tuple[str, bytes] | None:
    part = path.removeprefix("/openapi/").strip("/")
    if part == "v2" and "com.github.proto-openapi" in accept:
        return _OPENAPI_PROTOBUF, openapi.v2_protobuf()
    if part == "v2":
        return wire.JSON, msgspec.json.encode(openapi.v2_json())
    if part == "v3":
        return wire.JSON, msgspec.json.encode(openapi.v3_root())
    group = openapi.v3_group(part.removeprefix("v3/")) if part.startswith("v3/") else None
    return (wire.JSON, msgspec.json.encode(group)) if group else None
