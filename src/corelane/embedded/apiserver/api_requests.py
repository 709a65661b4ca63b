"""Target and options of a request: its path, parsed as upstream's RequestInfo does, and its query.

After apiserver's `pkg/endpoints/request/requestinfo.go` and apimachinery's option types and their validation.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from corelane.embedded.apiserver import selector_syntax, status_errors
from corelane.embedded.apiserver.served_kinds import BINDINGS, REVIEWS, ServedKind, by_path
from corelane.embedded.apiserver.status_errors import StatusCause, quoted

Query = Mapping[str, str]

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_INTEGER = re.compile(r"([-+]?)([0-9]+)", re.ASCII)
_MANY = {"list", "watch"}
_NAMESPACE_PARTS = {"status", "finalize"}

ITEM = ("GET", "PUT", "PATCH", "DELETE")
COLLECTION = ("GET", "POST", "DELETE")
_SUBRESOURCE_METHODS = {
    "binding": ("POST",),
    "eviction": ("POST",),
    "log": ("GET",),
    "finalize": ("PUT",),
    "exec": ("GET", "POST"),
    "attach": ("GET", "POST"),
    "portforward": ("GET", "POST"),
    "proxy": ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"),
}
_POD_PARTS = {"binding", "eviction", "log", "exec", "attach", "portforward", "proxy"}
_NODE_PARTS = {"proxy"}


@dataclass(frozen=True, slots=True)
class Target:
    """A request's path and verb; `kind` is None for paths that name no served resource."""

    path: str
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    rest: tuple[str, ...] = ()
    kind: ServedKind | None = None
    named: bool = False
    """Whether the path itself has the name, and not a selector."""
    watch_path: bool = False
    """Whether the path is of the old `/watch/` kind."""

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)

    @property
    def key(self) -> str:
        """The object's place in the store."""
        return f"{self.namespace}/{self.name}" if self.kind and self.kind.namespaced else self.name

    @property
    def prefix(self) -> str:
        """Prefix of the collection's keys."""
        namespaced = self.kind is not None and self.kind.namespaced
        return f"{self.namespace}/" if namespaced and self.namespace else ""


def parse(path: str, method: str, query: Query) -> Target:
    """Take a decoded path apart; never fails, what is not understood has no `kind`."""
    parts = path.strip("/").split("/")
    plain = Target(path, method.lower())
    if path.startswith("//") or parts[0] not in {"api", "apis"}:
        return plain
    group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[2:])
    if len(rest) < 2 or (rest[1] == "watch" and len(rest) < 3):
        return plain
    verb = _VERBS.get(method, "")
    old_watch = rest[1] == "watch"
    if old_watch:
        verb, rest = "watch", [rest[0], *rest[2:]]
    target = _resource(path, verb, group, rest[0], rest[1:], query)
    return replace(target, watch_path=old_watch)


def _resource(path: str, verb: str, group: str, version: str, parts: list[str], query: Query) -> Target:
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_PARTS:
            parts = parts[2:]
    resource, name, subresource, *_ = (*parts, "", "")
    named = bool(name)
    if not named:
        verb, name = _collection_verb(verb, query)
    kind = by_path(group, version, resource)
    if (group, version, resource) == ("", "v1", BINDINGS.plural):
        kind = BINDINGS
    return Target(
        path, verb, group, version, resource, subresource, namespace, name, tuple(parts[3:]), kind, named
    )


def _collection_verb(verb: str, query: Query) -> tuple[str, str]:
    """A get or delete without a name is about the collection; a list's selector may still name one object."""
    if verb == "delete":
        return "deletecollection", ""
    if verb == "get":
        verb = "watch" if flag(query, "watch") else "list"
    try:
        fields = selector_syntax.parse_fields(query.get("fieldSelector", "")) if verb in _MANY else ()
    except ValueError:
        fields = ()
    return verb, selector_syntax.Selectors(fields=fields).name


def methods(target: Target) -> tuple[str, ...]:
    """The HTTP methods that the route of a built-in kind serves; none where there is no such route."""
    kind, named = target.kind, target.named
    if kind is None or not target.resource:
        return ()
    if kind in REVIEWS:
        return ("POST",) if not (target.namespace or named) else ()
    if kind is BINDINGS:
        return ("POST",) if target.namespace and not named else ()
    if target.watch_path:
        return ("GET",) if not target.subresource else ()
    if target.rest and target.subresource != "proxy":
        return ()
    if target.subresource:
        own = {"pods": _POD_PARTS, "nodes": _NODE_PARTS}.get(target.resource, set())
        is_served = target.subresource in own or target.subresource in kind.subresources
        placed = bool(target.namespace) or not kind.namespaced
        if not is_served or not placed or not target.named:
            return ()
        return _SUBRESOURCE_METHODS.get(target.subresource, ("GET", "PUT", "PATCH"))
    if kind.namespaced and not target.namespace:
        return () if named else ("GET",)
    if not kind.namespaced and target.namespace and target.resource != "namespaces":
        return ()
    if named:
        return ITEM
    return ("GET", "POST") if target.resource == "namespaces" else COLLECTION


# --- query options


def flag(query: Query, name: str) -> bool:
    """A boolean parameter: present without a value is true, as upstream reads it."""
    return name in query and query[name].lower() not in {"false", "0"}


def integer(query: Query, name: str) -> int | None:
    """A parameter as a number, None if it is not there; empty it is none. Raises StatusError 400."""
    text = query.get(name)
    if text is None:
        return None
    match = _INTEGER.fullmatch(text)
    number = _number(match[2]) * (-1 if match[1] == "-" else 1) if match else 0
    if match and -(2**63) <= number < 2**63:
        return number
    raise status_errors.bad_request(f"{name}: {quoted(text)} is not an integer of 64 bits")


def _number(digits: str) -> int:
    """Their value, or one out of every range: Python refuses to read thousands of digits."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= 20 else 2**64


def revision(text: str) -> int:
    """A resourceVersion as a number. Raises ValueError."""
    number = _number(text) if text.isascii() and text.isdigit() else 2**64
    if number >= 2**64:
        raise ValueError(f"resourceVersion: {quoted(text)} is not an unsigned integer of 64 bits")
    return number


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of list, watch and deletecollection."""

    selection: selector_syntax.Selectors = field(default_factory=selector_syntax.Selectors)
    resource_version: str = ""
    match: str = ""
    limit: int = 0
    continuation: str = ""
    timeout: int | None = None
    bookmarks: bool = False
    initial_events: bool | None = None
    watch: bool = False


def list_options(query: Query, *, watch: bool) -> ListOptions:
    """Read and validate. Raises StatusError 400 or 422."""
    limit, timeout = integer(query, "limit") or 0, integer(query, "timeoutSeconds")
    try:
        selection = selector_syntax.Selectors(
            selector_syntax.parse_labels(query.get("labelSelector", "")),
            selector_syntax.parse_fields(query.get("fieldSelector", "")),
        )
    except ValueError as error:
        raise status_errors.bad_request(str(error)) from None
    options = ListOptions(
        selection,
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        limit=limit,
        continuation=query.get("continue", ""),
        timeout=timeout,
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial_events=flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
        watch=watch,
    )
    faults = _watch_faults(options) if watch else _list_faults(options)
    if faults:
        raise status_errors.invalid("ListOptions", "meta.k8s.io", "", faults)
    return options


def _forbidden(name: str, why: str) -> StatusCause:
    return StatusCause("FieldValueForbidden", f"Forbidden: {why}", name)


def unsupported(name: str, value: str, supported: Iterable[str]) -> StatusCause:
    """Cause for a value outside an enumeration; `value` comes as Go would print it."""
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return StatusCause(
        "FieldValueNotSupported", f"Unsupported value: {value}: supported values: {choices}", name
    )


def _list_faults(options: ListOptions) -> list[StatusCause]:
    name, match = "resourceVersionMatch", options.match
    rules = (
        (match and not options.resource_version, f"{name} is forbidden unless resourceVersion is provided"),
        (match and options.continuation, f"{name} is forbidden when continue is provided"),
    )
    faults = [_forbidden(name, why) for broken, why in rules if broken]
    if match and match not in {"Exact", "NotOlderThan"}:
        faults.append(unsupported(name, f'"{match}"', ("Exact", "NotOlderThan", "")))
    if match == "Exact" and options.resource_version == "0":
        faults.append(_forbidden(name, f'{name} "exact" is forbidden for resourceVersion "0"'))
    if options.initial_events is not None:
        faults.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return faults


def _watch_faults(options: ListOptions) -> list[StatusCause]:
    name, match = "resourceVersionMatch", options.match
    faults = []
    if options.initial_events is not None and match != "NotOlderThan":
        faults.append(_forbidden(name, f"sendInitialEvents requires setting {name} to NotOlderThan"))
    if match and options.initial_events is None:
        faults.append(_forbidden(name, f"{name} is forbidden for watch unless sendInitialEvents is provided"))
    if match and match != "NotOlderThan":
        faults.append(unsupported(name, f'"{match}"', ("NotOlderThan",)))
    if match and options.continuation:
        faults.append(_forbidden(name, f"{name} is forbidden when continue is provided"))
    return faults


FieldValidation = Literal["Strict", "Warn", "Ignore"]
_LONGEST_MANAGER = 128  # bytes


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of create, update and patch."""

    dry_run: bool = False
    field_validation: FieldValidation = "Warn"
    manager: str = ""
    """The name under which managed fields record the write."""
    force: bool = False
    """Whether an apply takes fields that others own."""


def write_options(
    query: Query, kind: str, dry_run: list[str], *, apply: bool = False, user_agent: str = ""
) -> WriteOptions:
    """Read and validate `CreateOptions`, `UpdateOptions` or `PatchOptions`. Raises StatusError 422.

    A writer that does not name itself goes by the beginning of its `user_agent`, but for an `apply`.
    """
    manager = query.get("fieldManager", "")
    faults = []
    if len(manager.encode()) > _LONGEST_MANAGER:
        text = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
        faults.append(StatusCause("FieldValueTooLong", text, "fieldManager"))
    if not manager.isprintable():
        text = f"Invalid value: {quoted(manager)}: must have printable characters only"
        faults.append(StatusCause("FieldValueInvalid", text, "fieldManager"))
    faults += dry_run_faults(dry_run)
    validation = query.get("fieldValidation", "")
    if validation not in {"", "Ignore", "Strict", "Warn"}:
        faults.append(unsupported("fieldValidation", f'"{validation}"', ("", "Ignore", "Strict", "Warn")))
    if apply and not manager:
        text = "Required value: is required for apply patch"
        faults.insert(0, StatusCause("FieldValueRequired", text, "fieldManager"))
    if kind == "PatchOptions" and "force" in query and not apply:
        faults.insert(0, _forbidden("force", "may not be specified for non-apply patch"))
    if faults:
        raise status_errors.invalid(kind, "meta.k8s.io", "", faults)
    strictness: dict[str, FieldValidation] = {"Strict": "Strict", "Ignore": "Ignore"}
    return WriteOptions(
        bool(dry_run),
        strictness.get(validation, "Warn"),
        manager or _agent_name(user_agent),
        apply and flag(query, "force"),
    )


def _agent_name(user_agent: str) -> str:
    """Return the printable beginning of a User-Agent, up to its first slash, in at most 128 bytes."""
    name = "".join(letter for letter in user_agent.partition("/")[0] if letter.isprintable())
    return name.encode()[:_LONGEST_MANAGER].decode(errors="ignore")


def dry_run_faults(values: list[str]) -> list[StatusCause]:
    if not values or values == ["All"]:
        return []
    shown = "[" + ",".join(f'"{value}"' for value in values) + "]"
    return [unsupported("dryRun", shown, ("All",))]
