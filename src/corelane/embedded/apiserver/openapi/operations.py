"""The operations on each kind as plain values: path, method, parameters, request and response bodies."""

from collections.abc import Iterator
from dataclasses import dataclass

from corelane.embedded.apiserver.openapi import discovery
from corelane.embedded.apiserver.openapi.schemas import GVK, PATCH, body_kind, gvk, list_model, model
from corelane.embedded.apiserver.schema.object_meta import DELETE_OPTIONS, STATUS
from corelane.embedded.apiserver.served_kinds import ServedKind

PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_STRATEGIC = PATCH_TYPES[2]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter in the path or the query."""

    name: str
    type: str = "string"
    where: str = "query"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path. `request` and `response` name schemas; "" is no body, or plain text."""

    path: str
    method: str
    action: str
    gvk: GVK
    parameters: tuple[Parameter, ...]
    request: str
    response: str
    consumes: tuple[str, ...] = ("application/json", "application/yaml")

    @property
    def id(self) -> str:
        """A name for the operation that no other has."""
        words = [word.strip("{}") for word in self.path.split("/")[2:]]
        return self.action + "".join(word[:1].upper() + word[1:] for word in words)


def _query(text: str) -> tuple[Parameter, ...]:
    """Return parameters of the query by names, with `:TYPE` where it is not string."""
    parts = (word.partition(":") for word in text.split())
    return tuple(Parameter(name, kind or "string") for name, _, kind in parts)


_PRETTY, _FORCE = _query("pretty force:boolean")
_WRITE = _query("dryRun fieldManager fieldValidation")
_LIST = _query(
    "allowWatchBookmarks:boolean continue fieldSelector labelSelector limit:integer resourceVersion "
    "resourceVersionMatch sendInitialEvents:boolean timeoutSeconds:integer watch:boolean"
)
_DELETE = _query("dryRun gracePeriodSeconds:integer orphanDependents:boolean propagationPolicy")
_LOG = _query(
    "container follow:boolean previous:boolean sinceSeconds:integer tailLines:integer timestamps:boolean"
)
_NAME, _NAMESPACE = Parameter("name", where="path"), Parameter("namespace", where="path")


def operations(kind: ServedKind, version: str) -> Iterator[Operation]:
    """Everything that the server answers for one version of a kind."""
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    within = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    scope = (_NAMESPACE,) if kind.namespaced else ()
    if kind.namespaced:
        yield _list(kind, version, f"{root}/{kind.plural}", ())
    yield from _collection(kind, version, within, scope)
    yield from _item(kind, version, f"{within}/{{name}}", (*scope, _NAME))
    for name in kind.subresources:
        yield from _subresource(kind, version, name, f"{within}/{{name}}/{name}", (*scope, _NAME))


def _list(kind: ServedKind, version: str, path: str, scope: tuple[Parameter, ...]) -> Operation:
    parameters = (*scope, *_LIST, _PRETTY)
    return Operation(path, "get", "list", gvk(kind, version), parameters, "", list_model(kind, version))


def _collection(
    kind: ServedKind, version: str, path: str, scope: tuple[Parameter, ...]
) -> Iterator[Operation]:
    own, named = gvk(kind, version), model(kind, version)
    yield _list(kind, version, path, scope)
    yield Operation(path, "post", "post", own, (*scope, *_WRITE, _PRETTY), named, named)
    if "deletecollection" in discovery.verbs(kind):
        parameters = (*scope, *_LIST[1:7], *_DELETE, _PRETTY)
        answer = DELETE_OPTIONS.model, STATUS.model
        yield Operation(path, "delete", "deletecollection", own, parameters, *answer)


def _item(kind: ServedKind, version: str, path: str, scope: tuple[Parameter, ...]) -> Iterator[Operation]:
    own, named = gvk(kind, version), model(kind, version)
    yield Operation(path, "get", "get", own, (*scope, _PRETTY), "", named)
    yield from _writes(kind, version, path, scope)
    answer = DELETE_OPTIONS.model, STATUS.model
    yield Operation(path, "delete", "delete", own, (*scope, *_DELETE, _PRETTY), *answer)


def _writes(kind: ServedKind, version: str, path: str, scope: tuple[Parameter, ...]) -> Iterator[Operation]:
    own, named = gvk(kind, version), model(kind, version)
    parameters = (*scope, *_WRITE, _PRETTY)
    types = tuple(t for t in PATCH_TYPES if t != _STRATEGIC or not kind.custom)
    yield Operation(path, "put", "put", own, parameters, named, named)
    yield Operation(path, "patch", "patch", own, (*parameters, _FORCE), PATCH, named, types)


def _subresource(
    kind: ServedKind, version: str, name: str, path: str, scope: tuple[Parameter, ...]
) -> Iterator[Operation]:
    body = body_kind(kind, name)
    if name == "log":
        yield Operation(path, "get", "connect", gvk(kind, version), (*scope, *_LOG), "", "")
    elif body is not kind:
        named = model(body, body.version)
        yield Operation(path, "post", "post", gvk(body, body.version), (*scope, *_WRITE), named, named)
    elif name == "finalize":
        named = model(kind, version)
        yield Operation(path, "put", "put", gvk(kind, version), (*scope, *_WRITE), named, named)
    else:
        own, named = gvk(kind, version), model(kind, version)
        yield Operation(path, "get", "get", own, (*scope, _PRETTY), "", named)
        yield from _writes(kind, version, path, scope)
