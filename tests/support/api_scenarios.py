"""Random requests to an API server, as scenarios in the form of the recorded vectors.

`generate(NAME, seed)` is a scenario of a class; the same seed gives the same scenario. Objects start valid
and change in a few places, so that most answers come from validation and not from the decoder.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

Step = dict[str, Any]
Steps = list[Step]
Json = Any

CLASSES: dict[str, tuple[str, Callable[[Random], Steps]]] = {}
"""Class name to the vectors' category and the maker of steps."""

NRT = "/apis/topology.node.k8s.io"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CORE_EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


def generate(name: str, seed: int) -> dict[str, Any]:
    """A scenario; deterministic."""
    category, make = CLASSES[name]
    steps = make(Random(f"{name}/{seed}"))
    for found in steps:
        if "as=Table" in ((found.get("headers") or {}).get("Accept") or ""):
            found["ignore"] = list(_IGNORED)
    return {"scenario": f"{name}-{seed}", "category": category, "steps": steps}


_IGNORED = ("body.columnDefinitions.*.description", "events.*.object.columnDefinitions.*.description")


def scenario(name: str, category: str) -> Callable[[Callable[[Random], Steps]], Callable[[Random], Steps]]:
    def add(make: Callable[[Random], Steps]) -> Callable[[Random], Steps]:
        CLASSES[name] = (category, make)
        return make

    return add


def step(method: str, path: str, body: Json = None, headers: Json = None, **more: Any) -> Step:
    found: Step = {"method": method, "path": path}
    if body is not None:
        found["body"] = body
    if headers:
        found["headers"] = headers
    return found | more


# --- changes of valid objects

_WORDS = (
    "",
    "a",
    "Bad_Name",
    "a.b",
    "-a",
    "x" * 64,
    "x" * 254,
    "é",
    "a/b",
    "example.com/a",
    " a",
    "10",
    "1Gi",
)
_ODD: tuple[Json, ...] = (None, 0, -1, 1, 1.5, True, False, [], {}, [None], ["a"], [1], {"a": "b"}, {"a": 1})
_BIG: tuple[Json, ...] = (2**31, 2**63, 1e30, -(2**63), 1e3, 1.0)
_TIMES = (
    "2026-01-02T03:04:05Z",
    "2026-01-02T03:04:05.123456Z",
    "2026-01-02T03:04:05.123456789Z",
    "2026-01-02T03:04:05+02:00",
    "2026-01-02",
    "2026-13-02T03:04:05Z",
    "",
    "now",
)


def value(rng: Random, old: Json = None) -> Json:
    """A value to put in the place of `old`: often of its type."""
    if isinstance(old, str) and rng.random() < 0.6:
        pool = _TIMES if old[:4].isdigit() and "T" in old else _WORDS
        return rng.choice(pool)
    if isinstance(old, int) and rng.random() < 0.6:
        return rng.choice((0, -1, 1, 7, 2**31 - 1, 2**31, -5))
    return copy.deepcopy(rng.choice(_WORDS + _ODD + _BIG if rng.random() < 0.5 else _ODD))


def places(obj: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every member and element below `obj`."""
    pairs = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    found = []
    for key, child in pairs:
        found += [(*path, key), *places(child, (*path, key))]
    return found


_KEPT = {("kind",), ("apiVersion",), ("metadata",), ("metadata", "name")}


def mutated(rng: Random, obj: Json, changes: int) -> Json:
    """A copy with some members changed, removed, repeated or added."""
    obj = copy.deepcopy(obj)
    for _ in range(changes):
        known = [p for p in places(obj) if p not in _KEPT or rng.random() < 0.05]
        if not known:
            return obj
        path = rng.choice(known)
        parent = obj
        for key in path[:-1]:
            parent = parent[key]
        last = path[-1]
        how = rng.random()
        if how < 0.30:
            del parent[last]
        elif how < 0.85:
            parent[last] = value(rng, parent[last])
        elif how < 0.93 and isinstance(parent, dict):
            parent[rng.choice(("unknown", "Name", "extra", str(last).upper()))] = value(rng)
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        else:
            parent[last] = [parent[last]]
    return obj


def field_validation(rng: Random) -> str:
    return rng.choice(("", "", "?fieldValidation=Strict", "?fieldValidation=Warn", "?fieldValidation=Ignore"))


def query(*parts: str) -> str:
    found = "&".join(part.lstrip("?") for part in parts if part)
    return f"?{found}" if found else ""


# --- NodeResourceTopology


def zone(rng: Random, number: int) -> Json:
    amounts = ("4", 4, "3500m", "1Gi", "0.5", "1e3", "+2", "-1")
    resource = {
        "name": rng.choice(("cpu", "memory", "example.com/nic")),
        "capacity": rng.choice(amounts),
        "allocatable": rng.choice(amounts),
        "available": rng.choice(amounts),
    }
    made: Json = {"name": f"node-{number}", "type": "Node"}
    if rng.random() < 0.8:
        made["resources"] = [resource, {**resource, "name": "memory"}][: rng.choice((1, 2))]
    if rng.random() < 0.6:
        made["costs"] = [{"name": f"node-{i}", "value": 10 + 11 * i} for i in range(rng.choice((1, 2)))]
    if rng.random() < 0.5:
        made["attributes"] = [{"name": "a", "value": "b"}]
    if rng.random() < 0.3:
        made["parent"] = "socket-0"
    return made


def topology(rng: Random, version: str, name: str) -> Json:
    made: Json = {
        "apiVersion": f"topology.node.k8s.io/{version}",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "zones": [zone(rng, number) for number in range(rng.choice((1, 1, 2)))],
    }
    if version == "v1alpha1" or rng.random() < 0.5:
        made["topologyPolicies"] = rng.choice((["SingleNUMANodePodLevel"], ["None", "BestEffort"], []))
    if version == "v1alpha2" and rng.random() < 0.5:
        made["attributes"] = [{"name": "topologyManagerPolicy", "value": "restricted"}]
    if rng.random() < 0.3:
        made["metadata"]["labels"] = {"a": "b"}
    return made


def topologies(version: str) -> str:
    return f"{NRT}/{version}/noderesourcetopologies"


def version_of(rng: Random) -> str:
    return rng.choice(("v1alpha1", "v1alpha2"))


@scenario("nrt-create", "validate")
def nrt_create(rng: Random) -> Steps:
    steps = []
    for number in range(12):
        version = version_of(rng)
        obj = mutated(rng, topology(rng, version, f"n{number}"), rng.choice((0, 1, 1, 1, 2, 3)))
        other = version_of(rng)
        steps.append(step("POST", topologies(version) + field_validation(rng), obj))
        if rng.random() < 0.3:
            steps.append(step("GET", f"{topologies(other)}/n{number}", headers=accept(rng)))
    steps.append(step("GET", topologies(version_of(rng)), headers=accept(rng)))
    return steps


@scenario("nrt-update", "update")
def nrt_update(rng: Random) -> Steps:
    steps = []
    for number in range(4):
        version, name = version_of(rng), f"n{number}"
        obj = topology(rng, version, name)
        steps.append(step("POST", topologies(version), obj, capture={"rv": "metadata.resourceVersion"}))
        for _ in range(3):
            other = version_of(rng)
            new = mutated(rng, topology(rng, other, name), rng.choice((0, 0, 1, 2)))
            if isinstance(new.get("metadata"), dict) and rng.random() < 0.8:
                new["metadata"]["resourceVersion"] = "${rv}"
            steps.append(step("PUT", f"{topologies(other)}/{name}{field_validation(rng)}", new))
            steps.append(
                step("GET", f"{topologies(version)}/{name}", capture={"rv": "metadata.resourceVersion"})
            )
    steps.append(step("PUT", f"{topologies('v1alpha2')}/none", topology(rng, "v1alpha2", "none")))
    return steps


def patch_of(rng: Random, obj: Json, kinds: tuple[Json, ...]) -> tuple[Json, Json]:
    """A body and headers."""
    headers = rng.choice(kinds)
    if headers.get("Content-Type") == "application/json-patch+json":
        return [operation(rng, obj) for _ in range(rng.choice((1, 1, 2)))], headers
    changed = mutated(rng, obj, rng.choice((1, 1, 2)))
    if rng.random() < 0.5 and isinstance(changed, dict):
        keys = list(changed)
        changed = {key: changed[key] for key in rng.sample(keys, k=min(len(keys), 2))}
    return changed, headers


def operation(rng: Random, obj: Json) -> Json:
    path = rng.choice([p for p in places(obj) if p[:1] not in {("kind",), ("apiVersion",)}])
    pointer = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
    op = rng.choice(("replace", "replace", "remove", "add", "test", "copy", "move", "nonsense"))
    made: Json = {"op": op, "path": pointer}
    if op in {"replace", "add", "test"}:
        made["value"] = value(rng)
    if op in {"copy", "move"}:
        made["from"] = rng.choice((pointer, "/metadata/name", "/none"))
    if rng.random() < 0.1:
        made["path"] = rng.choice(("", "/", "none", pointer + "/-", "/none/deep"))
    return made


@scenario("nrt-patch", "patch")
def nrt_patch(rng: Random) -> Steps:
    version = version_of(rng)
    obj = topology(rng, version, "n")
    steps = [step("POST", topologies(version), obj)]
    for _ in range(10):
        other = version_of(rng)
        body, headers = patch_of(rng, obj, (MERGE, MERGE, JSON_PATCH, STRATEGIC))
        if isinstance(body, dict) and "apiVersion" in body and rng.random() < 0.8:
            body["apiVersion"] = f"topology.node.k8s.io/{other}"
        steps.append(step("PATCH", f"{topologies(other)}/n{field_validation(rng)}", body, headers))
    for media in (
        "application/json",
        "text/plain",
        "application/yaml",
        "",
        "application/merge-patch+json;x=y",
    ):
        steps += [step("PATCH", f"{topologies(version)}/n", {}, {"Content-Type": media or None})]
    steps.append(step("PATCH", f"{topologies(version)}/none", {}, MERGE))
    steps.append(step("GET", f"{topologies(version_of(rng))}/n"))
    return steps


def accept(rng: Random) -> Json:
    media = rng.choice(
        (
            "",
            "",
            "",
            "application/yaml",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json",
            "*/*",
            "text/html",
            "application/xml, */*;q=0.1",
        )
    )
    return {"Accept": media} if media else None


# --- paths and methods

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO")


@scenario("paths", "methods")
def paths(rng: Random) -> Steps:
    version = version_of(rng)
    steps = [
        step("POST", topologies("v1alpha2"), topology(rng, "v1alpha2", "n")),
        step("POST", "/api/v1/namespaces/default/configmaps", config_map("c")),
        step("POST", LEASES, lease("l")),
    ]
    known = (
        f"{topologies(version)}/n",
        topologies(version),
        f"{topologies(version)}/n/status",
        f"{topologies(version)}/n/scale",
        f"{topologies(version)}/none",
        f"{topologies(version)}/none/status",
        f"{topologies('v1')}/n",
        f"{NRT}/{version}/namespaces/default/noderesourcetopologies",
        f"{NRT}/{version}/namespaces/default/noderesourcetopologies/n",
        f"{NRT}/{version}/nosuch",
        f"{NRT}/{version}/nosuch/n",
        f"{NRT}/{version}",
        NRT,
        f"{NRT}/v9",
        "/api/v1/namespaces/default/configmaps/c",
        "/api/v1/namespaces/default/configmaps/c/status",
        "/api/v1/configmaps/c",
        "/api/v1/configmaps",
        f"{LEASES}/l",
        LEASES,
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1beta9/leases",
        "/apis/nosuch.example.com/v1/things",
        "/apis/nosuch.example.com/v1",
        "/apis/nosuch.example.com",
        "/api/v1/nodes/none/status",
        "/api/v1/namespaces/none/pods/none/binding",
        "/api/v1/namespaces/default/pods/none/eviction",
        "/api/v1/namespaces/default/nosuch",
        "/api/v1/namespaces/default/status",
        "/api/v1/namespaces/default/finalize",
        "/apis/scheduling.k8s.io/v1/priorityclasses/none/status",
        "/version",
        "/api",
        "/apis",
        "/api/v1",
        "/api/v2",
        "/healthz",
        "/nosuch",
    )
    for _ in range(24):
        path, method = rng.choice(known), rng.choice(_METHODS)
        path = slashed(rng, path)
        if path.rstrip("/") in {"/version", "/api/v1", "/apis", "/healthz"} and method == "GET":
            continue
        body = {} if method in {"POST", "PUT", "PATCH"} else None
        steps.append(
            step(method, path, body, {"Content-Type": rng.choice(_TYPES)} if body is not None else None)
        )
    return steps


_TYPES = ("application/json", "application/merge-patch+json", "application/json-patch+json", "text/plain", "")


def slashed(rng: Random, path: str) -> str:
    """Perhaps with a doubled slash, or one at the end."""
    how = rng.random()
    if how < 0.2:
        places = [index for index, char in enumerate(path) if char == "/"]
        at = rng.choice(places)
        return path[:at] + "/" + path[at:]
    if how < 0.3:
        return path + rng.choice(("/", "//"))
    return path


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}}


# --- leases and events


def lease(name: str) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 40,
            "acquireTime": "2026-01-02T03:04:05.123456Z",
            "renewTime": "2026-01-02T03:04:05.123456Z",
            "leaseTransitions": 1,
        },
    }


@scenario("leases", "validate")
def leases(rng: Random) -> Steps:
    steps = []
    for number in range(10):
        obj = lease(f"l{number}")
        if rng.random() < 0.3:
            obj["spec"]["strategy"] = rng.choice(
                ("OldestEmulationVersion", "", "Nonsense", "example.com/own")
            )
        if rng.random() < 0.3:
            obj["spec"]["preferredHolder"] = rng.choice(("", "you", "me"))
        obj = mutated(rng, obj, rng.choice((0, 1, 1, 2, 3)))
        steps.append(step("POST", LEASES + field_validation(rng), obj))
    steps.append(step("POST", LEASES, lease("l"), capture={"rv": "metadata.resourceVersion"}))
    for _ in range(8):
        obj = mutated(rng, lease("l"), rng.choice((0, 1, 1, 2)))
        if isinstance(obj.get("metadata"), dict) and rng.random() < 0.8:
            obj["metadata"]["resourceVersion"] = "${rv}"
        steps.append(step("PUT", f"{LEASES}/l{field_validation(rng)}", obj))
        steps.append(step("GET", f"{LEASES}/l", capture={"rv": "metadata.resourceVersion"}))
    for _ in range(4):
        body, headers = patch_of(rng, lease("l"), (MERGE, STRATEGIC, JSON_PATCH))
        steps.append(step("PATCH", f"{LEASES}/l", body, headers))
    steps.append(step("GET", LEASES, headers=accept(rng)))
    return steps


def core_event(rng: Random, name: str) -> Json:
    made: Json = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {
            "kind": "Pod",
            "namespace": "default",
            "name": "p",
            "apiVersion": "v1",
            "uid": "1",
        },
        "reason": "Started",
        "message": "it started",
        "type": "Normal",
        "count": 1,
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }
    if rng.random() < 0.5:
        made |= {
            "eventTime": "2026-01-02T03:04:05.123456Z",
            "action": "Act",
            "reportingComponent": "example.com/c",
            "reportingInstance": "i",
        }
        if rng.random() < 0.4:
            made["series"] = {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.123456Z"}
    if rng.random() < 0.3:
        made["related"] = {"kind": "Node", "name": "n"}
    if rng.random() < 0.2:
        made["involvedObject"] = rng.choice(
            ({"kind": "Node", "name": "n"}, {"kind": "Node", "namespace": "x"})
        )
    return made


def new_event(rng: Random, name: str) -> Json:
    made: Json = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-01-02T03:04:05.123456Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "Act",
        "reason": "Started",
        "type": rng.choice(("Normal", "Warning")),
        "note": "it started",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p", "apiVersion": "v1"},
    }
    if rng.random() < 0.3:
        made["series"] = {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.123456Z"}
    if rng.random() < 0.3:
        made["related"] = {"kind": "Node", "name": "n", "namespace": rng.choice(("", "default", "x"))}
    if rng.random() < 0.15:
        made["deprecatedCount"] = rng.choice((0, 1))
    if rng.random() < 0.1:
        made["deprecatedSource"] = {"component": "c"}
    if rng.random() < 0.1:
        made["note"] = "x" * rng.choice((1024, 1025))
    if rng.random() < 0.1:
        made["reason"] = "x" * rng.choice((128, 129))
    if rng.random() < 0.1:
        made["action"] = "x" * rng.choice((128, 129))
    if rng.random() < 0.1:
        made["reportingInstance"] = "x" * rng.choice((128, 129))
    if rng.random() < 0.15:
        made["regarding"] = rng.choice(({"kind": "Node", "name": "n"}, {}, {"namespace": "kube-system"}))
    return made


_EVENTS: tuple[tuple[str, Callable[[Random, str], Json]], ...] = (
    (CORE_EVENTS, core_event),
    (NEW_EVENTS, new_event),
)


@scenario("events", "validate")
def events(rng: Random) -> Steps:
    steps = []
    for number in range(12):
        path, make = rng.choice(_EVENTS)
        obj = mutated(rng, make(rng, f"e{number}"), rng.choice((0, 0, 1, 1, 2)))
        steps.append(step("POST", path + field_validation(rng), obj))
        if rng.random() < 0.3:
            steps.append(step("GET", f"{rng.choice(_EVENTS)[0]}/e{number}", headers=accept(rng)))
    for name, (path, make) in zip(("core", "new"), _EVENTS, strict=True):
        obj = make(rng, name)
        steps.append(step("POST", path, obj))
        for _ in range(5):
            where, other = rng.choice(_EVENTS)
            new = copy.deepcopy(obj) if other is make else other(rng, name)
            new = mutated(rng, new, rng.choice((0, 1, 1, 2)))
            if rng.random() < 0.4:
                new["series"] = {"count": 3, "lastObservedTime": "2026-01-02T03:04:06.123456Z"}
            steps.append(step("PUT", f"{where}/{name}", new))
        for _ in range(4):
            where = rng.choice(_EVENTS)[0]
            body, headers = patch_of(rng, obj, (MERGE, STRATEGIC, JSON_PATCH))
            if isinstance(body, dict):
                body.pop("apiVersion", None)
                if isinstance(body.get("metadata"), dict):
                    body["metadata"].pop("name", None)
            steps.append(step("PATCH", f"{where}/{name}", body, headers))
        steps.append(step("GET", f"{rng.choice(_EVENTS)[0]}/{name}"))
    steps.append(step("GET", rng.choice(_EVENTS)[0], headers=accept(rng)))
    return steps


# --- pods: gates, deletion with grace, eviction


def pod(name: str, **spec: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "img:1"}], **spec},
    }


def binding(name: str) -> Json:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


@scenario("gates", "create")
def gates(rng: Random) -> Steps:
    names = ("example.com/a", "b", "example.com/c", "", "Bad Name", "a/b/c")
    steps = []
    for number in range(4):
        name = f"p{number}"
        wanted = [{"name": one} for one in rng.sample(names[:3], k=rng.choice((1, 2, 3)))]
        if rng.random() < 0.2:
            wanted.append({"name": rng.choice(names)})
        steps.append(step("POST", PODS, pod(name, schedulingGates=wanted)))
        steps.append(step("GET", f"{PODS}/{name}", headers=accept(rng)))
        steps.append(step("POST", f"{PODS}/{name}/binding", binding(name)))
        fewer = wanted[: rng.choice((0, 0, 1))]
        patch = {"spec": {"schedulingGates": fewer}}
        steps.append(step("PATCH", f"{PODS}/{name}", patch, rng.choice((MERGE, STRATEGIC))))
        condition = {"type": "PodScheduled", "status": rng.choice(("False", "True")), "reason": "Because"}
        if rng.random() < 0.5:
            condition["lastTransitionTime"] = rng.choice(_TIMES[:4])
        if rng.random() < 0.5:
            condition["observedGeneration"] = rng.choice((0, 1, 2))
        body = {"status": {"conditions": [condition]}}
        steps.append(step("PATCH", f"{PODS}/{name}/status", body, STRATEGIC))
        steps.append(step("POST", f"{PODS}/{name}/binding", binding(name)))
        steps.append(step("GET", f"{PODS}/{name}", headers=accept(rng)))
    steps.append(step("GET", PODS, headers=accept(rng)))
    return steps


def delete_options(rng: Random) -> Json:
    made: Json = {}
    if rng.random() < 0.7:
        made["gracePeriodSeconds"] = rng.choice((0, 1, 5, 10, 30, 60, -1))
    if rng.random() < 0.2:
        made["propagationPolicy"] = rng.choice(("Foreground", "Background", "Orphan", "Nonsense"))
    if rng.random() < 0.15:
        made["orphanDependents"] = rng.choice((True, False))
    if rng.random() < 0.15:
        made["dryRun"] = rng.choice((["All"], ["None"], []))
    if rng.random() < 0.15:
        made["preconditions"] = rng.choice(({"uid": "no"}, {"resourceVersion": "1"}, {"uid": "${uid}"}, {}))
    if rng.random() < 0.1:
        made |= {"kind": rng.choice(("DeleteOptions", "Pod")), "apiVersion": rng.choice(("v1", "policy/v1"))}
    return made


@scenario("grace", "delete")
def grace(rng: Random) -> Steps:
    """One pod after another is deleted several times, each time with other options."""
    steps = []
    for number in range(4):
        name = f"p{number}"
        obj = pod(name, terminationGracePeriodSeconds=rng.choice((0, 1, 30, 45)))
        if rng.random() < 0.3:
            obj["metadata"]["finalizers"] = ["example.com/hold"]
        steps.append(step("POST", PODS, obj, capture={"uid": "metadata.uid"}))
        if rng.random() < 0.8:
            steps.append(step("POST", f"{PODS}/{name}/binding", binding(name)))
        if rng.random() < 0.2:
            phase = {"status": {"phase": rng.choice(("Running", "Succeeded", "Failed"))}}
            steps.append(step("PATCH", f"{PODS}/{name}/status", phase, MERGE))
        for _ in range(rng.choice((2, 3, 4))):
            if rng.random() < 0.3:
                seconds = rng.choice(("0", "1", "5", "60", "-1", "x"))
                more = rng.choice(
                    ("", "&propagationPolicy=Background", "&dryRun=All", "&orphanDependents=true")
                )
                steps.append(step("DELETE", f"{PODS}/{name}?gracePeriodSeconds={seconds}{more}"))
            else:
                body = delete_options(rng)
                steps.append(step("DELETE", f"{PODS}/{name}", body or None))
            steps.append(step("GET", f"{PODS}/{name}"))
    steps.append(step("DELETE", PODS, delete_options(rng) or None))
    steps.append(step("GET", PODS))
    return steps


@scenario("eviction-options", "eviction")
def eviction_options(rng: Random) -> Steps:
    steps = []
    for number in range(5):
        name = f"p{number}"
        made = step("POST", PODS, pod(name), capture={"uid": "metadata.uid"})
        steps.append(made)
        if rng.random() < 0.7:
            steps.append(step("POST", f"{PODS}/{name}/binding", binding(name)))
        for _ in range(rng.choice((1, 2, 3))):
            body: Json = {
                "apiVersion": rng.choice(("policy/v1", "policy/v1", "policy/v1", "policy/v1beta1")),
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": "default"},
            }
            if rng.random() < 0.8:
                body["deleteOptions"] = delete_options(rng)
            if rng.random() < 0.2:
                body["metadata"]["name"] = rng.choice(("other", "", None))
            if rng.random() < 0.1:
                body["metadata"]["namespace"] = "other"
            if rng.random() < 0.15:
                body = mutated(rng, body, 1)
            more = query(field_validation(rng), rng.choice(("", "", "dryRun=All", "dryRun=None")))
            steps.append(step("POST", f"{PODS}/{name}/eviction{more}", body))
            steps.append(step("GET", f"{PODS}/{name}"))
    steps.append(step("POST", f"{PODS}/none/eviction", {"metadata": {"name": "none"}}))
    return steps


# --- callers


_NOBODY = {"Authorization": None}
_VIEWER = {"Authorization": "Bearer viewtoken"}


@scenario("callers", "auth")
def callers(rng: Random) -> Steps:
    paths = (
        "/healthz", "/livez", "/readyz", "/version", "/version/", "/healthz/", "/healthz/ping", "/livez/ping",
        "/readyz/ping", "/readyz/nosuch", "/api", "/api/", "/apis", "/api/v1", "/apis/", "/openapi/v2",
        "/metrics", "/", "/nosuch", "/apis/coordination.k8s.io", "/apis/coordination.k8s.io/v1", "/healthzz",
        "/livez/nosuch", "/apis/nosuch.example.com", "/api/v2", NRT, f"{NRT}/v1alpha1", "//version",
        "/version//",
    )  # fmt: skip
    steps = []
    for _ in range(25):
        path, method = rng.choice(paths), rng.choice(("GET", "GET", "GET", "GET", "HEAD", "POST", "DELETE"))
        headers = rng.choice((_NOBODY, _NOBODY, _VIEWER))
        found = step(method, path, {} if method == "POST" else None, headers, ignore=["body"])
        steps.append(found)
    for _ in range(6):
        place = rng.choice(
            (PODS, f"{PODS}/p", f"{PODS}/p/status", topologies("v1alpha1"), LEASES, "/api/v1/nodes/n")
        )
        method = rng.choice(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
        body = {} if method in {"POST", "PUT", "PATCH"} else None
        steps.append(step(method, place + rng.choice(("", "?watch=1", "?fieldSelector=metadata.name%3Dx")),
                          body, rng.choice((_NOBODY, _VIEWER))))  # fmt: skip
    return steps


REVIEWS = (
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
)


@scenario("reviews", "auth")
def reviews(rng: Random) -> Steps:
    steps = []
    for _ in range(16):
        path = rng.choice(REVIEWS)
        body: Json = {}
        if "access" in path:
            verb = rng.choice(("get", "*", "create", "list", ""))
            resource = {"verb": verb, "resource": rng.choice(("pods", "*", "selfsubjectreviews", ""))}
            resource |= {"group": rng.choice(("", "*", "authentication.k8s.io")), "namespace": "default"}
            plain = {
                "verb": verb,
                "path": rng.choice(("/healthz", "/api", "/api/v1", "/metrics", "/version/")),
            }
            both = {"resourceAttributes": resource, "nonResourceAttributes": plain}
            one = rng.choice(tuple(both))
            body = {"spec": rng.choice(({one: both[one]}, {one: both[one]}, {}, both))}
        elif "token" in path:
            token = rng.choice(("admintoken", "viewtoken", "wrong", ""))
            body = {"spec": {"token": token}}
            if rng.random() < 0.3:
                body["spec"]["audiences"] = rng.choice(([], ["https://kubernetes.default.svc"], ["other"]))
        elif "rules" in path:
            body = {"spec": rng.choice(({"namespace": "default"}, {"namespace": "none"}, {}))}
        method = rng.choice(("POST", "POST", "POST", "POST", "GET", "PUT", "DELETE"))
        suffix = rng.choice(("", "", "", "", "/x"))
        headers = rng.choice(({}, {}, _VIEWER, _NOBODY))
        ignore = ["body.metadata.managedFields", "body.status.userInfo.uid", "body.status.user.uid"]
        rules = ["body.status.nonResourceRules", "body.status.resourceRules"] if "rules" in path else []
        steps.append(step(method, path + suffix, body if method in {"POST", "PUT"} else None, headers,
                          ignore=ignore + rules))  # fmt: skip
    return steps


# --- secrets

SECRETS = "/api/v1/namespaces/default/secrets"
_SECRET_TYPES = (
    "", "Opaque", "kubernetes.io/tls", "kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson",
    "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth", "kubernetes.io/service-account-token",
    "helm.sh/release.v1", "example.com/own", "bootstrap.kubernetes.io/token",
)  # fmt: skip
_SECRET_KEYS = (
    "k", "tls.crt", "tls.key", ".dockercfg", ".dockerconfigjson", "username", "password", "ssh-privatekey",
    "Bad Key", "a.b-c_d",
)  # fmt: skip
_SECRET_VALUES = ("", "dg==", "e30=", "W10=", "bm8=", "e30=\n", "no base64!", None, 5, "IiI=")


def secret(rng: Random, name: str) -> Json:
    made: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    if rng.random() < 0.8:
        made["type"] = rng.choice(_SECRET_TYPES)
    if rng.random() < 0.8:
        keys = rng.sample(_SECRET_KEYS, k=rng.choice((1, 2, 3)))
        made["data"] = {
            one: rng.choice(_SECRET_VALUES[:6] if rng.random() < 0.9 else _SECRET_VALUES) for one in keys
        }
    if rng.random() < 0.4:
        keys = rng.sample(_SECRET_KEYS[:8], k=rng.choice((1, 2)))
        made["stringData"] = {one: rng.choice(("", "text", "{}", "é")) for one in keys}
    if rng.random() < 0.2:
        made["immutable"] = rng.choice((True, False))
    if rng.random() < 0.2:
        made["metadata"]["annotations"] = {"kubernetes.io/service-account.name": rng.choice(("a", ""))}
    return made


@scenario("secrets", "validate")
def secrets(rng: Random) -> Steps:
    steps = []
    for number in range(10):
        name = f"s{number}"
        obj = mutated(rng, secret(rng, name), rng.choice((0, 0, 0, 1)))
        steps.append(step("POST", SECRETS + field_validation(rng), obj))
        steps.append(step("GET", f"{SECRETS}/{name}", headers=accept(rng)))
        if rng.random() < 0.6:
            steps.append(step("PUT", f"{SECRETS}/{name}", secret(rng, name)))
        if rng.random() < 0.6:
            changed = {key: value for key, value in secret(rng, name).items() if rng.random() < 0.7}
            changed.pop("metadata", None)
            steps.append(step("PATCH", f"{SECRETS}/{name}", changed, rng.choice((MERGE, STRATEGIC))))
    steps.append(step("GET", f"{SECRETS}?fieldSelector=type%3DOpaque"))
    steps.append(step("GET", f"{SECRETS}?fieldSelector=data%3Dx"))
    steps.append(step("GET", SECRETS, headers=accept(rng)))
    steps.append(step("DELETE", f"{SECRETS}/s0"))
    steps.append(step("DELETE", SECRETS))
    return steps
