"""Warnings about valid but probably unintended fields (upstream: `pkg/api/pod/warnings.go`)."""

import ipaddress
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from corelane import names, quantity
from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.go_quoting import quoted
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.validation.causes import child, item, key
from corelane.embedded.apiserver.validation.deprecations import NODE_LABELS as _LABELS
from corelane.embedded.apiserver.validation.deprecations import VOLUMES as _VOLUMES
from corelane.embedded.apiserver.validation.pod_rules import each_container

Object = dict[str, Any]

# Warnings are advice: of what is too much to read, what comes first is enough.
MAX_WARNINGS = 1000
MAX_COMPARED = 200

_SYSCTLS = 'non-functional in v1.11+; use the "sysctls" field instead'
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": _SYSCTLS,
    "security.alpha.kubernetes.io/unsafe-sysctls": _SYSCTLS,
}
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_TEXT = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def on_create(kind: ServedKind, obj: Object) -> list[str]:
    """Return the warnings for a new object."""
    if kind.plural == "pods":
        return list(islice(chain(_pod_name(obj), _pod(obj)), MAX_WARNINGS))
    return list(_node(obj)) if kind.plural == "nodes" else []


def on_update(kind: ServedKind, obj: Object, old: Object, subresource: str = "") -> list[str]:
    """Return the warnings for a changed object; of a pod only its addresses are checked."""
    if kind.plural == "pods" and subresource == "status":
        return list(_addresses(obj))
    return list(_node(obj)) if kind.plural == "nodes" and not subresource else []


def _pod_name(pod: Object) -> Iterator[str]:
    faults = names.dns_label(pod["metadata"].get("name", ""))
    if faults:
        why = "this is used in the Pod's hostname, which can result in surprising behavior"
        yield f"metadata.name: {why}; a DNS label is recommended: [{' '.join(faults)}]"


def _pod(pod: Object) -> Iterator[str]:
    spec, annotations = pod["spec"], pod["metadata"].get("annotations", {})
    yield from _node_selection(spec)
    yield from _spreading(spec)
    for name, why in _ANNOTATIONS.items():
        if name in annotations:
            yield f"{key('metadata.annotations', name)}: {why}"
    yield from _volumes(spec)
    yield from _repeats(spec)
    yield from _fractions(spec.get("overhead", {}), "spec.overhead")
    yield from _seccomp(spec, annotations)
    yield from _ports(spec)
    yield from _port_names(spec)
    yield from _affinity(spec)
    for index, server in enumerate(spec.get("dnsConfig", {}).get("nameservers", ())):
        yield from _address(server, item("spec.dnsConfig.nameservers", index))
    for index, alias in enumerate(spec.get("hostAliases", ())):
        yield from _address(alias.get("ip", ""), child(item("spec.hostAliases", index), "ip"))


def _node_selection(spec: Object) -> Iterator[str]:
    for name in spec.get("nodeSelector", ()):
        if name in _LABELS:
            yield f"{key('spec.nodeSelector', name)}: {_LABELS[name]}"
    affinity, path = spec.get("affinity", {}).get("nodeAffinity", {}), "spec.affinity.nodeAffinity"
    terms = affinity.get(_REQUIRED, {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        yield from _term(term, item(child(path, _REQUIRED, "nodeSelectorTerms"), index), weighted=False)
    for index, preferred in enumerate(affinity.get(_PREFERRED, ())):
        where = child(item(child(path, _PREFERRED), index), "preference")
        yield from _term(preferred.get("preference", {}), where, weighted=True)


def _term(term: Object, path: str, *, weighted: bool) -> Iterator[str]:
    for index, requirement in enumerate(term.get("matchExpressions", ())):
        where, name = item(child(path, "matchExpressions"), index), requirement.get("key", "")
        if name in _LABELS:
            yield f"{child(where, 'key')}: {name} is {_LABELS[name]}"
        for number, value in enumerate(requirement.get("values", ()) if weighted else ()):
            for fault in names.label_value(value):
                spot = item(child(where, "values"), number)
                yield f"{spot}: {value} is invalid, {fault}"


def _spreading(spec: Object) -> Iterator[str]:
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        path, name = item("spec.topologySpreadConstraints", index), constraint.get("topologyKey", "")
        if name in _LABELS:
            yield f"{child(path, 'topologyKey')}: {name} is {_LABELS[name]}"
        if "labelSelector" not in constraint:
            yield f"{child(path, 'labelSelector')}: {_NULL_SELECTOR}"


def _volumes(spec: Object) -> Iterator[str]:
    for index, volume in enumerate(spec.get("volumes", ())):
        for name in volume:
            if name in _VOLUMES:
                shown = "storageOS" if name == "storageos" else name
                yield f"{child(item('spec.volumes', index), shown)}: {_VOLUMES[name]}"
    for volume in spec.get("volumes", ()):
        yield from _overlaps(volume)


def _overlaps(volume: Object) -> Iterator[str]:
    """Files of one volume that would stand in each other's way."""
    name = quoted(volume.get("name", ""))
    for source, named in (("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")):
        if source in volume:
            label = _source(source, volume[source].get(named, ""))
            paths = [(file.get("path", ""), "") for file in volume[source].get("items", ())]
            yield from (f"volume {name} ({label}): overlapping paths: {pair}" for pair in _pairs(paths))
    if "projected" in volume:
        paths = [pair for one in volume["projected"].get("sources") or () for pair in _projected(one)]
        for source in volume["projected"].get("sources") or ():
            if not source:
                yield f"volume {name} (Projected) has no sources provided"
        yield from (f"volume {name} (Projected): overlapping paths: {pair}" for pair in _pairs(paths))


def _projected(source: Object) -> Iterator[tuple[str, str]]:
    for name in ("configMap", "secret", "downwardAPI"):
        label = _source(name, source.get(name, {}).get("name", ""))
        for file in source.get(name, {}).get("items", ()):
            yield file.get("path", ""), label
    if "serviceAccountToken" in source:
        yield source["serviceAccountToken"].get("path", ""), "ServiceAccountToken"


def _source(kind: str, name: str) -> str:
    titles = {"configMap": "ConfigMap", "secret": "Secret", "downwardAPI": "DownwardAPI"}
    return titles[kind] if kind == "downwardAPI" else f"{titles[kind]} {quoted(name)}"


def _pairs(paths: Iterable[tuple[str, str]]) -> Iterator[str]:
    seen: list[tuple[str, str]] = []
    for path, source in islice(paths, MAX_COMPARED):
        trimmed = (path.rstrip("/"), source)
        for other in seen:
            if trimmed[0] and other[0] and _nested(trimmed[0], other[0]):
                yield f"{_file(trimmed)} with {_file(other)}"
        seen.append(trimmed)


def _nested(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _file(named: tuple[str, str]) -> str:
    return f"{quoted(named[0])} ({named[1]})" if named[1] else quoted(named[0])


def _repeats(spec: Object) -> Iterator[str]:
    for name, part in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for index, entry in enumerate(spec.get(name, ())):
            value = entry.get(part, "")
            if value in seen:
                yield f"{child(item(child('spec', name), index), part)}: duplicate {part} {quoted(value)}"
            seen.add(value)
    for index, secret in enumerate(spec.get("imagePullSecrets", ())):
        if not secret.get("name"):
            yield f'{child(item("spec.imagePullSecrets", index), "name")}: invalid empty name ""'


def _fractions(
    amounts: dict[str, str], path: str, names: tuple[str, ...] = ("memory", "ephemeral-storage")
) -> Iterator[str]:
    for name in names:
        if name in amounts and quantity.parse(amounts[name]).milli % 1000:
            why = f"fractional byte value {quoted(amounts[name])} is invalid, must be an integer"
            yield f"{key(path, name)}: {why}"


def _seccomp(spec: Object, annotations: dict[str, str]) -> Iterator[str]:
    """Seccomp annotations; and, container by container, fractional bytes and hidden variables."""
    if _SECCOMP in annotations and "seccompProfile" not in spec.get("securityContext", {}):
        yield f"{key('metadata.annotations', _SECCOMP)}: {_SECCOMP_TEXT}"
    for container, path in each_container(spec, "spec"):
        name = _SECCOMP_CONTAINER + container.get("name", "")
        if name in annotations and "seccompProfile" not in container.get("securityContext", {}):
            yield f"{key('metadata.annotations', name)}: {_SECCOMP_TEXT}"
        resources = container.get("resources", {})
        for part in ("memory", "ephemeral-storage"):
            for column in ("limits", "requests"):
                yield from _fractions(resources.get(column, {}), child(path, "resources", column), (part,))
        yield from _hidden(container.get("env", ()), child(path, "env"))


def _hidden(variables: Iterable[Object], path: str) -> Iterator[str]:
    """A variable defined again, unless by way of its former value."""
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        builds_on = "valueFrom" not in variable and reference in value and value != reference
        if name in seen and not builds_on:
            why = f"hides previous definition of {quoted(name)}, which may be dropped when using apply"
            yield f"{item(path, index)}: {why}"
        seen.add(name)


def _ports(spec: Object) -> Iterator[str]:
    known: dict[tuple[int, str], list[tuple[str, Object]]] = {}
    for container, path in each_container(spec, "spec"):
        for index, port in enumerate(container.get("ports", ())):
            where = item(child(path, "ports"), index)
            if port.get("hostIP") and not port.get("hostPort"):
                yield f"{where}: hostIP set without hostPort: {_go_port(port)}"
            others = known.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
            for other, before in others:
                why = _port_clash(port, before)
                if why:
                    yield f"{where}: {why} port definition with {other}"
            if len(others) < MAX_COMPARED:
                others.append((where, port))


def _go_port(port: Object) -> str:
    rows = {"Name": "", "HostPort": 0, "ContainerPort": 0, "Protocol": "", "HostIP": ""}
    shown = (f"{go}:{port.get(go[0].lower() + go[1:], zero)}" for go, zero in rows.items())
    return "{" + " ".join(shown) + "}"


def _port_clash(one: Object, other: Object) -> str:
    ports = [port.get("hostPort", 0) for port in (one, other)]
    addresses = [port.get("hostIP", "") for port in (one, other)]
    if ports[0] == ports[1] and addresses[0] == addresses[1]:
        return "duplicate"
    if not all(ports):
        return "overlapping"
    return "dangerously ambiguous" if ports[0] == ports[1] and "" in addresses else ""


def _port_names(spec: Object) -> Iterator[str]:
    known: dict[str, str] = {}
    for container, path in each_container(spec, "spec"):
        for index, port in enumerate(container.get("ports", ())):
            name, where = port.get("name", ""), item(child(path, "ports"), index)
            if name in known:
                first = known[name]
                why = (
                    f"duplicate port name {quoted(name)} with {first}, services and probes that select ports"
                )
                yield f"{where}: {why} by name will use {first}"
            elif name:
                known[name] = where


def _affinity(spec: Object) -> Iterator[str]:
    for side in ("podAffinity", "podAntiAffinity"):
        terms = spec.get("affinity", {}).get(side, {})
        for column, inner in ((_REQUIRED, ()), (_PREFERRED, ("podAffinityTerm",))):
            for index, weighted in enumerate(terms.get(column, ())):
                term = weighted.get("podAffinityTerm", {}) if inner else weighted
                if "labelSelector" not in term:
                    where = item(child("spec.affinity", side, column), index)
                    yield f"{child(where, *inner, 'labelSelector')}: {_NULL_SELECTOR}"


def _addresses(pod: Object) -> Iterator[str]:
    for name in ("podIPs", "hostIPs"):
        for index, entry in enumerate(pod.get("status", {}).get(name, ())):
            yield from _address(entry.get("ip", ""), child(item(child("status", name), index), "ip"))


def _address(text: str, path: str) -> Iterator[str]:
    address = formats.parsed_address(text)
    if isinstance(address, ipaddress.IPv6Address) and str(address) != text:
        why = f"IPv6 address {quoted(text)} should be in RFC 5952 canonical format"
        yield f"{path}: {why} ({quoted(str(address))})"


def _node(node: Object) -> Iterator[str]:
    spec = node.get("spec", {})
    if "configSource" in spec:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
