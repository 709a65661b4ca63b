"""The OpenAPI documents: v3, one a group version, and v2, one for all, as JSON and in gnostic's protobuf."""

import hashlib
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import Any

import msgspec

from corelane.embedded.apiserver.openapi import discovery, protobuf
from corelane.embedded.apiserver.openapi.operations import Operation, Parameter, operations
from corelane.embedded.apiserver.openapi.schemas import V2_REFS, V3_REFS, definitions
from corelane.embedded.apiserver.served_kinds import KINDS, ServedKind

Document = dict[str, Any]

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_INFO = {"title": "Kubernetes", "version": f"v{discovery.KUBERNETES_VERSION}"}


@cache
def v3_root() -> Document:
    """`/openapi/v3`: where the document of each group version is; the hash lets clients keep it."""
    return {"paths": {path: {"serverRelativeURL": _url(path)} for path in _group_paths()}}


@cache
def v3_group(path: str) -> Document | None:
    """The document of `api/v1` or `apis/GROUP/VERSION`; of `api`, `apis` and `apis/GROUP` a short one."""
    path = path.strip("/")
    if path not in _group_paths():
        return None
    document = {"openapi": "3.0.0", "info": _INFO}
    kinds = _kinds_at(path)
    if not kinds:
        return document | {"paths": {f"/{path}/": {"get": _discovery_operation(path)}}}
    found = (operation for kind, version in kinds for operation in operations(kind, version))
    return document | {
        "paths": _paths(found, _v3_operation),
        "components": {"schemas": definitions(kinds, V3_REFS)},
    }


@cache
def v2_json() -> Document:
    """`/openapi/v2`: all kinds in one document."""
    kinds = [(kind, version) for kind in KINDS for version in kind.versions]
    found = (operation for kind, version in kinds for operation in operations(kind, version))
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(found, _v2_operation),
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


def _kinds_at(path: str) -> list[tuple[ServedKind, str]]:
    return [(kind, v) for kind in KINDS for v in kind.versions if _path(kind.group, v) == path]


def _url(path: str) -> str:
    content = msgspec.json.encode(v3_group(path))
    return f"/openapi/v3/{path}?hash={hashlib.sha256(content).hexdigest().upper()}"


def _paths(found: Iterable[Operation], render: Any) -> Document:
    ordered = sorted(found, key=lambda operation: operation.path)
    return {
        path: {operation.method: render(operation) for operation in group}
        for path, group in groupby(ordered, key=lambda operation: operation.path)
    }


def _discovery_operation(path: str) -> Document:
    name = "".join(word.capitalize() for word in path.replace(".", "/").split("/"))
    return {
        "description": "Lists the groups, versions and resources that are served.",
        "operationId": f"discover{name}",
        "responses": {"200": {"description": "OK"}},
    }


def _common(operation: Operation) -> Document:
    return {
        "operationId": operation.id,
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.gvk,
    }


def _v3_operation(operation: Operation) -> Document:
    rendered = _common(operation) | {"parameters": [_v3_parameter(p) for p in operation.parameters]}
    if operation.request:
        body = _v3_content(operation.consumes, operation.request)
        rendered["requestBody"] = {"content": body, "required": operation.method != "delete"}
    produced = ("application/json", "application/yaml") if operation.response else ("text/plain",)
    content = _v3_content(produced, operation.response)
    return rendered | {"responses": {"200": {"description": "OK", "content": content}}}


def _v3_content(types: Iterable[str], model: str) -> Document:
    schema = {"$ref": V3_REFS + model} if model else {"type": "string"}
    return {media_type: {"schema": schema} for media_type in types}


def _v3_parameter(parameter: Parameter) -> Document:
    return _parameter(parameter) | {"schema": {"type": parameter.type}}


def _parameter(parameter: Parameter) -> Document:
    required = {"required": True} if parameter.where == "path" else {}
    return {"name": parameter.name, "in": parameter.where, **required}


def _v2_operation(operation: Operation) -> Document:
    rendered = _common(operation) | {"parameters": [_v2_parameter(p) for p in operation.parameters]}
    if operation.request:
        body = {"name": "body", "in": "body", "schema": {"$ref": V2_REFS + operation.request}}
        rendered["consumes"] = list(operation.consumes)
        rendered["parameters"].append(body | ({"required": True} if operation.method != "delete" else {}))
    schema = {"$ref": V2_REFS + operation.response} if operation.response else {"type": "string"}
    rendered["produces"] = ["application/json" if operation.response else "text/plain"]
    return rendered | {"responses": {"200": {"description": "OK", "schema": schema}}}


def _v2_parameter(parameter: Parameter) -> Document:
    return _parameter(parameter) | {"type": parameter.type}
