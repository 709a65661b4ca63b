"""Rules on nodes, namespaces, config maps, leases, priority classes and events."""

import base64
from collections.abc import Iterator

from corelane import names
from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.codec import go_rendering
from corelane.embedded.apiserver.schema import node_kind as node_tables
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, key
from corelane.embedded.apiserver.validation.metadata_rules import kube_finalizer
from corelane.embedded.apiserver.validation.resource_rules import amount
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule, walk
from corelane.embedded.apiserver.validation.value_rules import config_keys

_LARGEST_CONFIG = 1024 * 1024
_HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM_CLASSES = {
    "system-node-critical": 2 * _HIGHEST_USER_PRIORITY + 1000,
    "system-cluster-critical": 2 * _HIGHEST_USER_PRIORITY,
}
_EVENT_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128}
_LONGEST_NOTE = 1024


@rule("taints")
def taints(node: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Upstream's faults name metadata here."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node.get("spec", {}).get("taints", ())):
        where = item("metadata.taints", index)
        yield from walk(node_tables.TAINT, taint, where, scope)
        pair = (taint.get("key", ""), taint.get("effect", ""))
        if pair in seen:
            shown = go_rendering.rendered(node_tables.TAINT, taint)
            yield causes.duplicate(where, shown, "taints must be unique by key and effect pair")
        seen.add(pair)


@rule("taint-value")
def _taint_value(taint: Object, path: str, _scope: Scope) -> list[StatusCause]:
    value = taint.get("value", "")
    faults = names.label_value(value)
    return [causes.invalid(child(path, "value"), value, ";".join(faults))] if faults else []


@rule("node-resources")
def node_resources(node: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    for column in ("capacity", "allocatable"):
        listed = node.get("status", {}).get(column, {})
        for name in sorted(listed):
            yield from amount(name, listed[name], child("status", column, name))


@rule("swap")
def _swap(node: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    capacity = node.get("status", {}).get("nodeInfo", {}).get("swap", {}).get("capacity")
    if capacity is not None and capacity <= 0:
        where = "metadata.nodeSwapStatus.capacity"
        yield causes.invalid(where, capacity, "must be a positive value")


@rule("declared-features")
def declared_features(node: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    """KEP-5328: sorted, each one once."""
    listed, path = node.get("status", {}).get("declaredFeatures", []), "status.declaredFeatures"
    for index, name in enumerate(listed):
        yield from causes.all_invalid(item(path, index), name, formats.feature_name(name))
        after = listed[index + 1] if index + 1 < len(listed) else None
        if after == name:
            yield causes.duplicate(item(path, index + 1), after)
        elif after is not None and name > after:
            yield causes.invalid(item(path, index + 1), after, "list must be sorted alphabetically")


@rule("pod-cidrs")
def _pod_cidrs(node: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    cidrs, path = node.get("spec", {}).get("podCIDRs", []), "spec.podCIDRs"
    for index, cidr in enumerate(cidrs):
        yield from causes.all_invalid(item(path, index), cidr, formats.cidr(cidr))
    if len(cidrs) > 1 and not dual_stack([cidr.partition("/")[0] for cidr in cidrs]):
        yield causes.invalid(path, cidrs, "may specify no more than one CIDR for each IP family")


def dual_stack(addresses: list[str]) -> bool:
    """Whether there is one address of each family."""
    known = [formats.parsed_address(address) for address in addresses]
    return len(known) == 2 and {address.version for address in known if address} == {4, 6}


@rule("namespace-finalizers")
def namespace_finalizers(namespace: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    for name in namespace.get("spec", {}).get("finalizers", ()):
        yield from finalizer(name, "spec.finalizers")


def finalizer(name: str, path: str) -> Iterator[StatusCause]:
    yield from causes.all_invalid(path, name, names.qualified_name(name))
    yield from kube_finalizer(name, path)


@rule("config-data")
def _config_data(config: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    data, binary = config.get("data", {}), config.get("binaryData", {})
    for name in data:
        yield from config_keys({name: ""}, "data")
        if name in binary:
            yield causes.invalid(key("data", name), name, "duplicate of key present in binaryData")
    yield from config_keys(binary, "binaryData")
    size = sum(len(text.encode()) for text in data.values())
    size += sum(len(base64.b64decode(text)) for text in binary.values())
    if size > _LARGEST_CONFIG:
        yield causes.too_long("", _LARGEST_CONFIG)


@rule("priority-value")
def _priority_value(klass: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    name, value = klass["metadata"].get("name", ""), klass.get("value", 0)
    if not name.startswith("system-"):
        if value > _HIGHEST_USER_PRIORITY:
            limit = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
            yield causes.forbidden("value", limit)
        return
    why = _not_a_system_class(name, value, bool(klass.get("globalDefault")))
    if why:
        reserved = "priority class names with 'system-' prefix are reserved for system use only. error: "
        yield causes.forbidden("metadata.name", reserved + why)


def _not_a_system_class(name: str, value: int, default: bool) -> str:
    known = _SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if value != known:
        return f"value of {name} PriorityClass must be {known}"
    return f"globalDefault of {name} PriorityClass must be false" if default else ""


def event(obj: Object, *, new_group: bool) -> Iterator[StatusCause]:
    """Rules on every write of an event (stored form); groups name the reporter differently."""
    where, space = obj.get("involvedObject", {}).get("namespace", ""), obj["metadata"].get("namespace", "")
    mismatch = causes.invalid("involvedObject.namespace", where, "does not match event.namespace")
    if not obj.get("eventTime"):
        if (space not in {"", "default"}) if not where else space != where:
            yield mismatch
    else:
        if not where and space not in {"default", "kube-system"}:
            yield mismatch
        yield from _reported(obj, "reportingController" if new_group else "reportingComponent")
    yield from causes.all_invalid("namespace", space, names.dns_subdomain(space))


def _reported(obj: Object, reporter: str) -> Iterator[StatusCause]:
    controller = obj.get("reportingComponent", "")
    if not controller:
        yield causes.required(reporter)
    yield from causes.all_invalid(reporter, controller, names.qualified_name(controller))
    for name, limit in _EVENT_LIMITS.items():
        if not obj.get(name):
            yield causes.required(name)
        if len(obj.get(name, "").encode()) > limit:
            yield causes.invalid(name, "", f"can have at most {limit} characters")
    if len(obj.get("message", "").encode()) > _LONGEST_NOTE:
        yield causes.invalid("message", "", f"can have at most {_LONGEST_NOTE} characters")


def new_event(obj: Object) -> Iterator[StatusCause]:
    """Further rules on creation through events.k8s.io."""
    yield from event_series(obj)
    if not obj.get("eventTime"):
        yield causes.required("eventTime")
    if obj.get("type") not in {"Normal", "Warning"}:
        yield causes.invalid("type", "", f"has invalid value: {obj.get('type', '')}")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if obj.get(name):
            yield causes.invalid(name, "", "needs to be unset")


def event_series(obj: Object) -> Iterator[StatusCause]:
    series = obj.get("series")
    if series is not None and series.get("count", 0) < 2:
        yield causes.invalid("series.count", "", "should be at least 2")
    if series is not None and not series.get("lastObservedTime"):
        yield causes.required("series.lastObservedTime")
