"""The OpenAPI documents: v3, one a group version, and v2, one for all, as JSON and in gnostic's protobuf.

Both are made from the operations on each kind: path, method, parameters, request and response bodies.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import msgspec

from corelane.embedded.apiserver.openapi import discovery, protobuf
from corelane.embedded.apiserver.openapi.schemas import (
    GVK,
    PATCH,
    V2_REFS,
    V3_REFS,
    body_kind,
    definitions,
    gvk,
    list_model,
    model,
)
from corelane.embedded.apiserver.schema.notation import DELETE_OPTIONS, STATUS
from corelane.embedded.apiserver.served_kinds import KINDS, ServedKind

_STRATEGIC = "application/strategic-merge-patch+json"
PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", _STRATEGIC)
Document = dict[str, Any]
_INFO = {"title": "Kubernetes", "version": f"v{discovery.KUBERNETES_VERSION}"}


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
    own, named, answer = gvk(kind, version), model(kind, version), (DELETE_OPTIONS.model, STATUS.model)
    yield _list(kind, version, within, scope)
    yield Operation(within, "post", "post", own, (*scope, *_WRITE, _PRETTY), named, named)
    if "deletecollection" in discovery.verbs(kind):
        parameters = (*scope, *_LIST[1:7], *_DELETE, _PRETTY)
        yield Operation(within, "delete", "deletecollection", own, parameters, *answer)
    item, scope = f"{within}/{{name}}", (*scope, _NAME)
    yield Operation(item, "get", "get", own, (*scope, _PRETTY), "", named)
    yield from _writes(kind, version, item, scope)
    yield Operation(item, "delete", "delete", own, (*scope, *_DELETE, _PRETTY), *answer)
    for name in kind.subresources:
        yield from _subresource(kind, version, name, f"{item}/{name}", scope)


def _list(kind: ServedKind, version: str, path: str, scope: tuple[Parameter, ...]) -> Operation:
    parameters = (*scope, *_LIST, _PRETTY)
    return Operation(path, "get", "list", gvk(kind, version), parameters, "", list_model(kind, version))


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


@cache
def v3_root() -> Document:
    """`/openapi/v3`: where the document of each group version is; the hash lets clients keep it."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(path)}"} for path in _group_paths()
        }
    }


@cache
def v3_group(path: str) -> Document | None:
    """The document of `api/v1` or `apis/GROUP/VERSION`; of `api`, `apis` and `apis/GROUP` a short one."""
    path = path.strip("/")
    if path not in _group_paths():
        return None
    document = {"openapi": "3.0.0", "info": _INFO}
    kinds = [(kind, v) for kind in KINDS for v in kind.versions if _path(kind.group, v) == path]
    if not kinds:
        operation = {
            "description": "Lists the groups, versions and resources that are served.",
            "operationId": "discover" + "".join(map(str.capitalize, path.replace(".", "/").split("/"))),
            "responses": {"200": {"description": "OK"}},
        }
        return document | {"paths": {f"/{path}/": {"get": operation}}}
    served = (operation for kind, version in kinds for operation in operations(kind, version))
    return document | {
        "paths": _paths(served, _v3_operation),
        "components": {"schemas": definitions(kinds, V3_REFS)},
    }


@cache
def v2_json() -> Document:
    """`/openapi/v2`: all kinds in one document."""
    kinds = [(kind, version) for kind in KINDS for version in kind.versions]
    served = (operation for kind, version in kinds for operation in operations(kind, version))
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(served, _v2_operation),
        "definitions": definitions(kinds, V2_REFS),
    }


@cache
def v2_protobuf() -> bytes:
    """`/openapi/v2` for kubectl before 1.29, which reads nothing else."""
    return protobuf.document(v2_json())


def _group_paths() -> list[str]:
    plain = [f"apis/{group}" for group in discovery.groups()]
    versions = [_path(group, version) for group, version in discovery.group_versions()]
    return sorted(["api", "apis", *plain, *versions])


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _hash(path: str) -> str:
    return hashlib.sha256(msgspec.json.encode(v3_group(path))).hexdigest().upper()


def _paths(served: Iterable[Operation], render: Any) -> Document:
    ordered = sorted(served, key=lambda operation: operation.path)
    return {
        path: {operation.method: render(operation) for operation in group}
        for path, group in groupby(ordered, key=lambda operation: operation.path)
    }


def _common(operation: Operation) -> Document:
    return {
        "operationId": operation.id,
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.gvk,
    }


def _v3_operation(operation: Operation) -> Document:
    rendered = _common(operation) | {
        "parameters": [_parameter(p) | {"schema": {"type": p.type}} for p in operation.parameters]
    }
    if operation.request:
        body = _v3_content(operation.consumes, operation.request)
        rendered["requestBody"] = {"content": body, "required": operation.method != "delete"}
    produced = ("application/json", "application/yaml") if operation.response else ("text/plain",)
    content = _v3_content(produced, operation.response)
    return rendered | {"responses": {"200": {"description": "OK", "content": content}}}


def _v3_content(types: Iterable[str], model: str) -> Document:
    schema = {"$ref": V3_REFS + model} if model else {"type": "string"}
    return {media_type: {"schema": schema} for media_type in types}


def _parameter(parameter: Parameter) -> Document:
    required = {"required": True} if parameter.where == "path" else {}
    return {"name": parameter.name, "in": parameter.where, **required}


def _v2_operation(operation: Operation) -> Document:
    rendered = _common(operation) | {
        "parameters": [_parameter(p) | {"type": p.type} for p in operation.parameters]
    }
    if operation.request:
        body = {"name": "body", "in": "body", "schema": {"$ref": V2_REFS + operation.request}}
        rendered["consumes"] = list(operation.consumes)
        rendered["parameters"].append(body | ({"required": True} if operation.method != "delete" else {}))
    schema = {"$ref": V2_REFS + operation.response} if operation.response else {"type": "string"}
    rendered["produces"] = ["application/json" if operation.response else "text/plain"]
    return rendered | {"responses": {"200": {"description": "OK", "schema": schema}}}
