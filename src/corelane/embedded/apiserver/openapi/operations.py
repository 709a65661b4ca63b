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
    description: str = ""


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


_DRY_RUN = Parameter("dryRun", description="`All`: process the request and store nothing.")
_PRETTY = Parameter("pretty", description="Whether the response is indented.")
_WRITE = (
    _DRY_RUN,
    Parameter("fieldManager", description="Name of the writer."),
    Parameter(
        "fieldValidation", description="Handling of unknown and duplicate fields: Ignore, Warn or Strict."
    ),
)
_FORCE = Parameter("force", "boolean", description="Take over fields of other managers (apply patches only).")
_LIST = (
    Parameter("allowWatchBookmarks", "boolean", description="Send bookmarks while watching."),
    Parameter("continue", description="Token from the previous page."),
    Parameter("fieldSelector", description="Only objects whose fields match."),
    Parameter("labelSelector", description="Only objects whose labels match."),
    Parameter("limit", "integer", description="Maximum number of objects in a page."),
    Parameter("resourceVersion", description="The version to list or to watch from."),
    Parameter("resourceVersionMatch", description="Meaning of resourceVersion: Exact or NotOlderThan."),
    Parameter("sendInitialEvents", "boolean", description="Begin a watch with the existing objects."),
    Parameter("timeoutSeconds", "integer", description="Seconds after which the watch ends."),
    Parameter("watch", "boolean", description="Stream changes instead of listing."),
)
_DELETE = (
    _DRY_RUN,
    Parameter("gracePeriodSeconds", "integer", description="Seconds until a pod is killed; 0 means at once."),
    Parameter("orphanDependents", "boolean", description="Superseded by propagationPolicy."),
    Parameter("propagationPolicy", description="Handling of dependents: Orphan, Background or Foreground."),
)
_LOG = (
    Parameter("container", description="Container whose log is read."),
    Parameter("follow", "boolean", description="Follow the log as it grows."),
    Parameter("previous", "boolean", description="The log of the container's previous run."),
    Parameter("sinceSeconds", "integer", description="Only lines younger than this."),
    Parameter("tailLines", "integer", description="Number of lines from the end."),
    Parameter("timestamps", "boolean", description="Prefix every line with its time."),
)
_NAME = Parameter("name", where="path", description="The object's name.")
_NAMESPACE = Parameter("namespace", where="path", description="The object's namespace.")


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
