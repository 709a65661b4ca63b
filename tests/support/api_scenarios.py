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


# --- pods, their status and bindings; nodes, priority classes, budgets, namespaces


NODES = "/api/v1/nodes"
CLASSES_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NAMESPACES = "/api/v1/namespaces"


def full_pod(rng: Random, name: str) -> Json:
    """A valid pod with some of everything that pods have."""
    container = {"name": "c", "image": "img:1", "command": ["sleep"], "args": ["60"]}
    some = {
        "env": [
            {"name": "A", "value": "b"},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "securityContext": {"runAsUser": 1000, "capabilities": {"add": ["NET_ADMIN"]}},
    }
    container |= {key: copy.deepcopy(value) for key, value in some.items() if rng.random() < 0.5}
    spec: Json = {"containers": [container]}
    more = {
        "initContainers": [{"name": "i", "image": "img:2"}],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute",
                         "tolerationSeconds": 5}],
        "nodeSelector": {"zone": "a"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                                       "whenUnsatisfiable": "DoNotSchedule",
                                       "labelSelector": {"matchLabels": {"a": "b"}}}],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 5,
        "activeDeadlineSeconds": 60,
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
        "dnsPolicy": "ClusterFirst",
        "securityContext": {"fsGroup": 5, "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
        "readinessGates": [{"conditionType": "example.com/r"}],
        "priorityClassName": "system-node-critical" if rng.random() < 0.2 else "",
    }  # fmt: skip
    spec |= {key: value for key, value in more.items() if rng.random() < 0.4}
    if any("volumeMounts" in one for one in spec["containers"]):
        spec["volumes"] = more["volumes"]
    made: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    if rng.random() < 0.4:
        made["metadata"] |= {"labels": {"a": "b"}, "annotations": {"example.com/x": "y"}}
    return made


@scenario("pods", "validate")
def pods(rng: Random) -> Steps:
    steps = []
    for number in range(8):
        obj = mutated(rng, full_pod(rng, f"p{number}"), rng.choice((0, 1, 1, 2)))
        steps.append(step("POST", PODS + field_validation(rng), obj))
    base = full_pod(rng, "p")
    steps.append(step("POST", PODS, base))
    for _ in range(5):
        body, headers = patch_of(rng, base, (MERGE, STRATEGIC, JSON_PATCH))
        steps.append(step("PATCH", f"{PODS}/p", body, headers))
        steps.append(step("PUT", f"{PODS}/p", mutated(rng, base, rng.choice((0, 1, 1)))))
    steps.append(step("GET", f"{PODS}/p", headers=accept(rng)))
    return steps


def pod_status(rng: Random) -> Json:
    made: Json = {"phase": rng.choice(("Pending", "Running", "Succeeded"))}
    time = "2026-01-02T03:04:05Z"
    more = {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time, "reason": "Because"},
                       {"type": "example.com/r", "status": "False"}],
        "containerStatuses": [{"name": "c", "image": "img:1", "imageID": "", "ready": True, "restartCount": 0,
                               "started": True, "state": {"running": {"startedAt": time}}}],
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "hostIP": "10.0.0.2",
        "hostIPs": [{"ip": "10.0.0.2"}],
        "startTime": time,
        "message": "m",
        "reason": "R",
        "qosClass": "BestEffort",
        "nominatedNodeName": "n",
        "observedGeneration": 1,
    }  # fmt: skip
    return made | {key: value for key, value in more.items() if rng.random() < 0.4}


@scenario("pod-status", "update")
def pod_statuses(rng: Random) -> Steps:
    steps = [step("POST", PODS, pod("p"), capture={"rv": "metadata.resourceVersion"})]
    if rng.random() < 0.5:
        steps.append(step("POST", f"{PODS}/p/binding", binding("p")))
    for _ in range(12):
        base = {**pod("p"), "status": pod_status(rng)}
        obj = mutated(rng, base, rng.choice((0, 1, 1, 2)))
        if rng.random() < 0.4:
            steps.append(step("PUT", f"{PODS}/p/status{field_validation(rng)}", obj))
        else:
            body, headers = patch_of(rng, base, (MERGE, STRATEGIC, JSON_PATCH))
            if isinstance(body, dict):
                body = {"status": body.get("status", pod_status(rng))}
            steps.append(step("PATCH", f"{PODS}/p/status", body, headers))
        if rng.random() < 0.3:
            steps.append(step("GET", f"{PODS}/p{rng.choice(('', '/status'))}", headers=accept(rng)))
    return steps


@scenario("bindings", "binding")
def bindings(rng: Random) -> Steps:
    steps = []
    for number in range(8):
        name = f"p{number}"
        gates = {"schedulingGates": [{"name": "example.com/g"}]} if rng.random() < 0.2 else {}
        steps.append(step("POST", PODS, pod(name, **gates), capture={"uid": "metadata.uid"}))
        body = binding(name)
        if rng.random() < 0.3:
            body["metadata"] |= {"annotations": {"example.com/a": "b"}, "labels": {"l": "m"}}
        if rng.random() < 0.3:
            body["metadata"]["uid"] = rng.choice(("${uid}", "other"))
        for _ in range(rng.choice((1, 2))):
            sent = mutated(rng, body, rng.choice((0, 0, 1, 1, 2)))
            more = query(field_validation(rng), rng.choice(("", "", "", "dryRun=All")))
            place = f"{PODS}/{name}/binding" if rng.random() < 0.8 else "/api/v1/namespaces/default/bindings"
            steps.append(step("POST", place + more, sent))
        steps.append(step("GET", f"{PODS}/{name}", headers=accept(rng)))
    return steps


def node(rng: Random, name: str) -> Json:
    made: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {}}
    spec = {
        "podCIDR": "10.1.0.0/24",
        "podCIDRs": ["10.1.0.0/24"],
        "providerID": "x://1",
        "unschedulable": True,
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    }
    status = {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/d": "2"},
        "allocatable": {"cpu": "3500m", "memory": "7Gi", "pods": 110},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "h"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {"kubeletVersion": "v1.36.2", "operatingSystem": "linux", "architecture": "amd64"},
        "images": [{"names": ["img:1"], "sizeBytes": 5}],
        "volumesInUse": ["v"],
    }
    made["spec"] |= {key: value for key, value in spec.items() if rng.random() < 0.4}
    made["status"] |= {key: copy.deepcopy(value) for key, value in status.items() if rng.random() < 0.5}
    return made


def changes(rng: Random, path: str, name: str, make: Callable[[], Json], parts: tuple[str, ...]) -> Steps:
    """Updates and patches of one object, some through its subresources."""
    steps = []
    for _ in range(10):
        base, part = make(), rng.choice(("", *parts))
        rv = {"rv": "metadata.resourceVersion"}
        if rng.random() < 0.5:
            obj = mutated(rng, base, rng.choice((0, 1, 1, 2)))
            if isinstance(obj.get("metadata"), dict) and rng.random() < 0.7:
                obj["metadata"]["resourceVersion"] = "${rv}"
            steps.append(step("PUT", f"{path}/{name}{part}{field_validation(rng)}", obj))
        else:
            body, headers = patch_of(rng, base, (MERGE, STRATEGIC, JSON_PATCH))
            if isinstance(body, dict):
                body.pop("metadata", None)
            steps.append(step("PATCH", f"{path}/{name}{part}", body, headers))
        steps.append(step("GET", f"{path}/{name}", capture=rv))
    return steps


@scenario("nodes", "update")
def nodes(rng: Random) -> Steps:
    steps = []
    for number in range(4):
        obj = mutated(rng, node(rng, f"n{number}"), rng.choice((0, 1, 1, 2)))
        steps.append(step("POST", NODES + field_validation(rng), obj))
    steps.append(step("POST", NODES, node(rng, "n"), capture={"rv": "metadata.resourceVersion"}))
    return steps + changes(rng, NODES, "n", lambda: node(rng, "n"), ("/status", "/status"))


@scenario("priority-classes", "validate")
def priority_classes(rng: Random) -> Steps:
    def make(name: str) -> Json:
        made: Json = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": rng.choice((5, 5, 1_000_000_000, 1_000_000_001, -5)),
        }
        more = {"globalDefault": rng.choice((True, False)), "description": "d",
                "preemptionPolicy": rng.choice(("Never", "PreemptLowerPriority", "Sometimes"))}  # fmt: skip
        return made | {key: value for key, value in more.items() if rng.random() < 0.4}

    steps = []
    for number in range(8):
        name = rng.choice((f"c{number}", f"c{number}", "system-node-critical", "system-x"))
        steps.append(
            step("POST", CLASSES_PATH + field_validation(rng), mutated(rng, make(name), rng.choice((0, 1))))
        )
    first = make("c") | {"value": 5, "globalDefault": False, "preemptionPolicy": "Never"}
    steps.append(step("POST", CLASSES_PATH, first, capture={"rv": "metadata.resourceVersion"}))
    steps += changes(rng, CLASSES_PATH, "c", lambda: make("c") | {"value": rng.choice((5, 5, 6))}, ())
    return [
        *steps,
        step("DELETE", f"{CLASSES_PATH}/system-node-critical"),
        step("DELETE", f"{CLASSES_PATH}/c"),
    ]


@scenario("budgets", "update")
def budgets(rng: Random) -> Steps:
    def make(name: str) -> Json:
        spec: Json = {
            rng.choice(("minAvailable", "maxUnavailable")): rng.choice((0, 1, "50%", "101%", "x", -1)),
            "selector": {"matchLabels": {"a": "b"}},
        }
        if rng.random() < 0.3:
            spec["unhealthyPodEvictionPolicy"] = rng.choice(("AlwaysAllow", "IfHealthyBudget", "Odd"))
        made: Json = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
        made["spec"] = spec
        if rng.random() < 0.4:
            made["status"] = {
                "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
                "observedGeneration": 1, "disruptedPods": {"p": "2026-01-02T03:04:05Z"},
                "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "R", "message": "",
                                "lastTransitionTime": "2026-01-02T03:04:05Z"}],
            }  # fmt: skip
        return made

    steps = []
    for number in range(6):
        obj = mutated(rng, make(f"b{number}"), rng.choice((0, 0, 1, 2)))
        steps.append(step("POST", BUDGETS + field_validation(rng), obj))
    first = make("b")
    first["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    steps.append(step("POST", BUDGETS, first, capture={"rv": "metadata.resourceVersion"}))
    return steps + changes(rng, BUDGETS, "b", lambda: make("b"), ("/status",))


@scenario("namespaces", "update")
def namespaces(rng: Random) -> Steps:
    def make(name: str) -> Json:
        made: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        if rng.random() < 0.4:
            made["metadata"]["labels"] = {"a": "b"}
        if rng.random() < 0.4:
            made["spec"] = {
                "finalizers": rng.choice((["kubernetes"], ["example.com/f", "kubernetes"], [], ["x"]))
            }
        if rng.random() < 0.3:
            made["status"] = {"phase": rng.choice(("Active", "Terminating"))}
        return made

    steps = []
    for number in range(6):
        name = rng.choice((f"n{number}", f"n{number}", "default", "a.b", "x" * 64))
        obj = mutated(rng, make(name), rng.choice((0, 0, 1, 2)))
        steps.append(step("POST", NAMESPACES + field_validation(rng), obj))
    steps.append(
        step("POST", NAMESPACES, {"metadata": {"name": "n"}}, capture={"rv": "metadata.resourceVersion"})
    )
    found = changes(rng, NAMESPACES, "n", lambda: make("n"), ("/status", "/finalize"))
    steps += [one for one in found if one["method"] != "PATCH" or "/finalize" not in one["path"]]
    return [*steps, step("PUT", f"{NAMESPACES}/n/finalize", make("n")), step("DELETE", NAMESPACES)]


# --- watches of applied objects

APPLY = {"Content-Type": "application/apply-patch+yaml"}
_APPLIED: dict[str, tuple[str, str, str, Callable[[Random], Json]]] = {
    "configmaps": ("/api/v1/namespaces/default/configmaps", "v1", "ConfigMap",
                   lambda rng: {"data": {key: rng.choice("123") for key in "abc" if rng.random() < 0.6}}),
    "pods": (PODS, "v1", "Pod",
             lambda rng: {"spec": {"containers": [{"name": "c", "image": f"i:{rng.choice('12')}"}]}}),
    "leases": (LEASES, "coordination.k8s.io/v1", "Lease",
               lambda rng: {"spec": {"holderIdentity": rng.choice("ab"), "leaseTransitions": 1}}),
    "nodes": (NODES, "v1", "Node",
              lambda rng: {"spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in "ab"
                                               if rng.random() < 0.5]}}),
    "topologies": (topologies("v1alpha2"), "topology.node.k8s.io/v1alpha2", "NodeResourceTopology",
                   lambda rng: {"zones": [{"name": "n", "type": rng.choice(("Node", "Socket"))}]}),
    "secrets": (SECRETS, "v1", "Secret",
                lambda rng: {"stringData": {key: rng.choice("12") for key in "ab" if rng.random() < 0.6}}),
}  # fmt: skip


@scenario("applied-watches", "ssa")
def applied_watches(rng: Random) -> Steps:
    """Events of objects that several managers apply: type, managed fields, revision."""
    path, api_version, kind, make = _APPLIED[rng.choice(sorted(_APPLIED))]

    def obj(name: str) -> Json:
        meta: Json = {"name": name}
        if rng.random() < 0.5:
            meta["labels"] = {"w": rng.choice("12")}
        return {"apiVersion": api_version, "kind": kind, "metadata": meta, **make(rng)}

    def write() -> Step:
        name, how = rng.choice(("o1", "o2")), rng.random()
        if how < 0.65:
            options = f"fieldManager={rng.choice(('m1', 'm2'))}&force={rng.choice(('true', 'true', 'false'))}"
            return step("PATCH", f"{path}/{name}?{options}", obj(name), APPLY)
        if how < 0.8:
            label = {"metadata": {"labels": {"w": rng.choice("12")}}}
            return step("PATCH", f"{path}/{name}?fieldManager=m3", label, MERGE)
        if how < 0.9:
            return step("POST", path, obj(name))
        return step("DELETE", f"{path}/{name}?gracePeriodSeconds=0")

    first = step("PATCH", f"{path}/o0?fieldManager=m0", obj("o0"), APPLY,
                 capture={"rv": "metadata.resourceVersion"})  # fmt: skip
    selector = rng.choice(("", "", "?labelSelector=w%3D1", "?fieldSelector=metadata.name%3Do1"))
    form = rng.choice(("", "", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"))
    watch = {
        "watch": path + selector,
        "from": "${rv}",
        "take": 40,
        "during": [write() for _ in range(8)],
        "headers": {"Accept": form} if form else {},
    }
    return [first, watch]
