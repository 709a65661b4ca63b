"""Requests to the API server.

Reads return slim structs. Writes take plain dicts and patches, because a struct lacks most fields.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from ssl import SSLError
from typing import Any, Final, Literal, Self, TypeVar

import msgspec

from corelane.kube import apierrors, decode
from corelane.kube.apierrors import APIError, Gone, MalformedObject, NoCluster, TooLong, Unreachable
from corelane.kube.connection import (
    CONFIGURATION_ERRORS,
    NETWORK_ERRORS,
    Answer,
    AnswerTooLongError,
    Connection,
    CredentialsError,
    Request,
    Response,
    Transport,
)
from corelane.kube.decode import Listing, Malformed, WatchEvent
from corelane.kube.meta import Object
from corelane.kube.objects import api_of, written

__all__ = ["APIError", "Gone", "Listing", "MalformedObject", "NoCluster", "Unreachable", "WatchEvent"]

T = TypeVar("T", bound=Object)
PatchKind = Literal["merge", "strategic", "json"]
_UNAUTHORIZED: Final = 401
_REDIRECTS: Final = 300
_ERRORS: Final = 400
"""Status codes from here on are errors."""
_BIND_SECONDS: Final = 30.0
_LONG: Final = 1 << 20
"""Malformed lists from this size on are decoded in a thread: it takes 0.2 s for each MiB at most."""
_ERROR_SECONDS: Final = 30.0
_LONGEST_ERROR: Final = 1 << 20
_EMPTY_PAGES: Final = 100
"""Pages in a row without an object after which a list counts as one without end."""
_MOST_OBJECTS: Final = 5_000_000
_JSON: Final = {"Content-Type": "application/json"}

_PATCH_TYPES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class KubeClient:
    """Requests to one cluster. Every method raises APIError; Unreachable without an answer."""

    def __init__(self, connection: Transport) -> None:
        self._connection = connection

    @classmethod
    def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> Self:
        """Use the named kubeconfig, else $KUBECONFIG, else ~/.kube/config, else a pod's service account.

        Raises ValueError, naming the file, if there is none or it makes no sense.
        """
        try:
            return cls(Connection.of_kubeconfig(kubeconfig, context))
        except CONFIGURATION_ERRORS as error:
            raise NoCluster(f"cannot connect to a cluster: {error}") from error

    @classmethod
    def connect_to(cls, url: str, token: str | None = None) -> Self:
        """Use the server at this URL, with a bearer token where it requires one."""
        return cls(Connection.of_server(url, token))

    async def close(self) -> None:
        await self._connection.close()

    async def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        """Read one object."""
        body = await self.raw("GET", kind.api.path(namespace, name))
        read = decode.decode_object(kind, body)
        if isinstance(read, Malformed):
            raise MalformedObject(str(read))
        return read

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
        cached: bool = False,
    ) -> Listing[T]:
        """Read all objects, `page` at a time; in one piece if the list expires between pages.

        With `cached` the server may answer from its cache, which can be older than what was written last:
        kube-apiserver then gives the whole list in one piece.
        """
        path = kind.api.path(namespace)
        version = "0" if cached else None
        query = _query(labelSelector=label_selector, fieldSelector=field_selector, resourceVersion=version)
        try:
            return await self._pages(kind, path, query | _query(limit=page))
        except Gone:
            return await self._pages(kind, path, query)

    async def _pages(self, kind: type[T], path: str, query: dict[str, str]) -> Listing[T]:
        items: list[T] = []
        malformed: list[Malformed] = []
        empty = 0
        while True:
            try:
                page = await _page(kind, await self.raw("GET", path, query))
            except TooLong:
                if query.pop("resourceVersion", None):
                    continue  # the cache knows no pages
                if int(query.get("limit", 1)) == 1:
                    raise
                query = query | {"limit": str(max(1, int(query["limit"]) // 4))}
                continue
            items += page.items
            malformed += page.malformed
            if not page.continuation:
                return Listing(tuple(items), page.resource_version, tuple(malformed))
            empty = 0 if page.items or page.malformed else empty + 1
            if empty > _EMPTY_PAGES or len(items) + len(malformed) > _MOST_OBJECTS:
                seen = f"{len(items)} objects, {empty} empty pages"
                raise MalformedObject(f"the list of {kind.api.plural} does not end ({seen})")
            query = query | {"continue": page.continuation}
            query.pop("resourceVersion", None)  # the continuation names it

    async def watch(
        self,
        kind: type[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int = 290,
        quiet_seconds: float | None = None,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Follow changes after `resource_version`, bookmarks included, until the server ends the watch.

        `opened` is called once the server has accepted it: the first change may come much later.
        Raises Gone when that version is too old, Unreachable when the connection breaks, also within a
        line, or when nothing at all came for `quiet_seconds`.
        """
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=timeout_seconds,
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        request = Request("GET", kind.api.path(namespace), query)
        try:
            async with self._connection.stream(request, quiet_seconds) as response:
                if response.status >= _REDIRECTS:
                    raise _failure(request, await _error(response))
                opened()
                lines = decode.Lines()
                async for chunk in response.content.iter_any():
                    for line in lines.feed(chunk):
                        yield decode.decode_event(kind, line)
                lines.close()
        except CredentialsError as error:
            raise _without_credentials(request, error) from error
        except NETWORK_ERRORS as error:
            raise self._unreachable(request, error) from error

    async def create(self, obj: Mapping[str, Any], *, field_manager: str | None = None) -> dict[str, Any]:
        """Create an object, and return it as stored; `field_manager` is recorded in `managedFields`."""
        api = api_of(str(obj.get("apiVersion")), str(obj.get("kind")))
        path = api.path((obj.get("metadata") or {}).get("namespace") or "default")
        return await self._json("POST", path, obj, query=_query(fieldManager=field_manager))

    async def patch(
        self,
        kind: type[Object],
        name: str,
        body: object,
        *,
        namespace: str | None = None,
        kind_of_patch: PatchKind = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Patch an object, or its subresource ("status"), and return it as stored."""
        path, query = written(kind).path(namespace, name, subresource), _query(fieldManager=field_manager)
        return await self._json("PATCH", path, body, _PATCH_TYPES[kind_of_patch], query)

    async def delete(
        self,
        kind: type[Object],
        name: str,
        *,
        namespace: str | None = None,
        grace_seconds: int | None = None,
        uid: str | None = None,
    ) -> dict[str, Any]:
        """Delete an object, of that `uid` only if given; 0 seconds of grace remove it at once."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return await self._json("DELETE", written(kind).path(namespace, name), options)

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Bind a pod to a node; the server merges annotations and labels into the pod in the same write.

        Whether it was carried out is certain after return (yes), and after an error that is a Status of a
        4xx code but 408, 409 and 429 (no).
        """
        target = _BindingTarget(node)
        meta = _BindingMeta(namespace, name, uid, annotations or {}, labels or {})
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        request = Request("POST", path, None, msgspec.json.encode(_Binding(meta, target)), _JSON)
        answer = await self._call(request, _BIND_SECONDS)
        if answer.status >= _ERRORS:
            raise _failure(request, answer)
        if answer.status >= _REDIRECTS or not _succeeded(answer.body):
            raise MalformedObject(f"{request}: {answer.status} without a Status: the outcome is unknown")

    async def raw(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "",
    ) -> bytes:
        """Send any request, and return the body of the answer."""
        headers = {"Content-Type": content_type} if body is not None else {}
        headers |= {"Accept": accept} if accept else {}
        request = Request(method, path, query, body, headers)
        answer = await self._call(request)
        if answer.status >= _REDIRECTS:
            raise _failure(request, answer)
        return answer.body

    async def _call(self, request: Request, seconds: float | None = None) -> Answer:
        try:
            answer = await self._connection.call(request, seconds)
            if answer.status == _UNAUTHORIZED and await self._connection.renew():
                answer = await self._connection.call(request, seconds)
        except CredentialsError as error:
            raise _without_credentials(request, error) from error
        except AnswerTooLongError as error:
            raise TooLong(f"API server {self._connection.server}: {request}: {error}") from error
        except NETWORK_ERRORS as error:
            raise self._unreachable(request, error) from error
        return answer

    def _unreachable(self, request: Request, error: Exception) -> Unreachable:
        """Return an error that names the server, the operating system's or TLS's reason, and the remedy."""
        cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0 and not isinstance(cause, SSLError):
            why = os.strerror(cause.errno)
        else:  # Name resolution and TLS have numbers of their own.
            why = str(getattr(cause, "strerror", None) or cause or type(error).__name__)
        return Unreachable(
            f"API server {self._connection.server}: {request}: no whole answer ({why}); "
            "check that it runs and is reachable"
        )

    async def _json(
        self,
        method: str,
        path: str,
        body: object,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        answer = await self.raw(method, path, query, msgspec.json.encode(body), content_type)
        return _tree(answer, f"{method} {path}")

    async def read_tree(self, path: str, *, accept: str = "") -> dict[str, Any]:
        """Read one object as plain values, without what is nested too deep."""
        return _tree(await self.raw("GET", path, accept=accept), f"GET {path}")


def _tree(answer: bytes, request: str) -> dict[str, Any]:
    tree = decode.plain_json(answer)
    if not isinstance(tree, dict):
        raise MalformedObject(f"{request}: the answer is not a JSON object")
    return tree


class _BindingMeta(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


class _BindingTarget(msgspec.Struct, frozen=True, gc=False):
    name: str
    api_version: str = msgspec.field(name="apiVersion", default="v1")
    kind: str = "Node"


class _Binding(msgspec.Struct, frozen=True, gc=False):
    metadata: _BindingMeta
    target: _BindingTarget
    api_version: str = msgspec.field(name="apiVersion", default="v1")
    kind: str = "Binding"


class _Outcome(msgspec.Struct, gc=False):
    kind: str
    status: Any = None


def _succeeded(body: bytes) -> bool:
    """Whether the body of a 2xx answer to a binding is the API server's: a Status, or the Binding itself."""
    try:
        outcome = msgspec.json.decode(body, type=_Outcome)
    except decode.UNDECODABLE:
        return False
    return outcome.kind == "Binding" or (outcome.kind == "Status" and outcome.status == "Success")


def _query(**values: object) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value is not None}


async def _page(kind: type[T], body: bytes) -> decode.DecodedPage[T]:
    try:
        return decode.decode_valid_page(kind, body)
    except decode.UNDECODABLE:
        pass
    try:
        if len(body) < _LONG:
            return decode.decode_page(kind, body)
        return await asyncio.to_thread(decode.decode_page, kind, body)
    except decode.UNDECODABLE as error:
        raise MalformedObject(f"the answer is not a list of {kind.api.plural}: {error}") from error


def _failure(request: Request, answer: Answer) -> APIError:
    fallback = f"{request}: {answer.status} {answer.reason}"
    return apierrors.of_status(answer.status, decode.plain_json(answer.body), fallback, answer.retry_after)


async def _error(response: Response) -> Answer:
    """Read an error's body, its first MiB at most."""
    body = b""
    async with asyncio.timeout(_ERROR_SECONDS):
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _LONGEST_ERROR:
                break
    return Answer(response.status, response.reason or "", body, response.headers.get("Retry-After", ""))


def _without_credentials(request: Request, error: Exception) -> Unreachable:
    return Unreachable(f"{request}: credentials for the API server: {error}")
