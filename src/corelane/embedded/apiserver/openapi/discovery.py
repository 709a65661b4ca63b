"""Discovery documents: versions, groups and resources, plain or aggregated, all from `KINDS`."""

import base64
import hashlib
import platform
from typing import Any

from corelane import __version__
from corelane.embedded.apiserver.served_kinds import KINDS, REVIEWS, ServedKind

Document = dict[str, Any]

KUBERNETES_VERSION = "1.36.2"
# Upstream's order of groups, by the priority that each has; others follow in alphabetical order.
_GROUP_ORDER = (
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "policy",
    "scheduling.k8s.io",
    "coordination.k8s.io",
)
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_SUBRESOURCE_VERBS = {
    "binding": ("create",),
    "eviction": ("create",),
    "finalize": ("update",),
    "log": ("get",),
    "status": ("get", "patch", "update"),
}
_FOREIGN = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}


def document(path: str, address: str = "") -> Document | None:
    """The plain document at `path`, or None where there is none."""
    match path.strip("/").split("/"):
        case ["version"]:
            return version_info()
        case ["api"]:
            places = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": _versions(""), "serverAddressByClientCIDRs": places}
        case ["apis"]:
            listed = [_group(name) for name in groups()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["apis", group] if group in groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["api", version]:
            return resource_list("", version)
        case ["apis", group, version] if group:
            return resource_list(group, version)
    return None


def version_info() -> Document:
    """`/version`: the Kubernetes version whose API this is; build metadata says that it is corelane."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES_VERSION}+corelane.{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"none (Python {platform.python_version()})",
        "compiler": platform.python_implementation(),
        "platform": f"linux/{machine}",
    }


def resource_list(group: str, version: str) -> Document | None:
    """`/api/v1` and `/apis/GROUP/VERSION`."""
    kinds = kinds_of(group, version)
    if not kinds:
        return None
    envelope = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    resources = [entry for kind in kinds for entry in _resources(kind)]
    return envelope | {"groupVersion": f"{group}/{version}" if group else version, "resources": resources}


def aggregated(path: str) -> Document:
    """`/api` (core) or `/apis` (all other groups) with every version and resource in one document."""
    names = groups() if path.strip("/") == "apis" else [""]
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": version,
                    "resources": [_aggregated_resource(kind, version) for kind in kinds_of(name, version)],
                    "freshness": "Current",
                }
                for version in _versions(name)
            ],
        }
        for name in names
    ]
    api_version = "apidiscovery.k8s.io/v2"
    return {"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items}


def groups() -> list[str]:
    """Names of the groups served beside core, in upstream's order."""
    names = {kind.group for kind in (*KINDS, *REVIEWS) if kind.group}
    return sorted(names, key=lambda name: ([*_GROUP_ORDER, name].index(name), name))


def group_versions() -> list[tuple[str, str]]:
    """Every (group, version) served, core first, a group's preferred version before its others."""
    return [(group, version) for group in ["", *groups()] for version in _versions(group)]


def kinds_of(group: str, version: str) -> list[ServedKind]:
    """The kinds of a version, in alphabetical order."""
    kinds = [kind for kind in (*KINDS, *REVIEWS) if kind.group == group and version in kind.versions]
    return sorted(kinds, key=lambda kind: kind.plural)


def verbs(kind: ServedKind) -> list[str]:
    """Return the verbs of a resource; namespaces are deleted one by one only, as upstream."""
    if kind in REVIEWS:
        return ["create"]
    offered = _CUSTOM_VERBS if kind.custom else _VERBS
    return [verb for verb in offered if verb != "deletecollection" or kind.kind != "Namespace"]


def _versions(group: str) -> list[str]:
    return list(dict.fromkeys(v for kind in (*KINDS, *REVIEWS) if kind.group == group for v in kind.versions))


def _group(name: str) -> Document:
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in _versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(kind: ServedKind) -> list[Document]:
    """A kind's own entry and those of its subresources, in a plain resource list."""
    # as upstream's storage version hash is for the same stored group, version and kind
    text = f"{'' if kind.stored == 'events' else kind.group}/{kind.version}/{kind.kind}"
    stored_as = base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()
    own = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs(kind),
    }
    own |= _aliases(kind) | ({} if kind in REVIEWS else {"storageVersionHash": stored_as})
    return [own, *(_subresource(kind, name) for name in sorted(kind.subresources))]


def _aliases(kind: ServedKind) -> Document:
    named = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {key: value for key, value in named.items() if value}


def _subresource(kind: ServedKind, name: str) -> Document:
    group, version, answers = _FOREIGN.get(name, (kind.group, "", kind.kind))
    entry: Document = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": answers,
        "verbs": list(_SUBRESOURCE_VERBS[name]),
    }
    return entry | ({"group": group, "version": version} if group != kind.group else {})


def _aggregated_resource(kind: ServedKind, version: str) -> Document:
    entry: Document = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind, version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs(kind),
        **_aliases(kind),
    }
    below = [_aggregated_subresource(kind, version, name) for name in sorted(kind.subresources)]
    return entry | ({"subresources": below} if below else {})


def _aggregated_subresource(kind: ServedKind, version: str, name: str) -> Document:
    group, foreign, answers = _FOREIGN.get(name, ("", "", kind.kind))
    elsewhere = {"group": group, "version": foreign, "kind": answers}
    return {
        "subresource": name,
        "responseKind": elsewhere if group else _response_kind(kind, version, answers),
        "verbs": list(_SUBRESOURCE_VERBS[name]),
    }


def _response_kind(kind: ServedKind, version: str, name: str) -> Document:
    """Built-in resources leave out a group and version that are their own."""
    place = (kind.group, version) if kind.custom else ("", "")
    return {"group": place[0], "version": place[1], "kind": name}
