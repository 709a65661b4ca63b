"""Containers that operators make from fields of their own: Spark's cores, KubeVirt's virtual CPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final, TypeAlias

from corelane.limits.lint.located import (
    Located,
    LocatedList,
    LocatedMapping,
    LocatedMember,
    LocatedScalar,
    Position,
    at,
    items,
    pairs,
    place,
    text,
)
from corelane.workload.request import launcher_cpus

SPARK_FIELDS: Final = {"limits.cpu": "coreLimit", "requests.cpu": "coreRequest"}
_JVM_SIZE: Final = re.compile(r"(\d{1,9})([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_MIB: Final = {"k": 2**-10, "": 1, "m": 1, "g": 2**10, "t": 2**20}
_Member: TypeAlias = LocatedMember | Located | None
_HEAP_MIB: Final = 1024.0
_LEAST_OVERHEAD_MIB: Final = 384.0


def spark_pod(root: Located, path: tuple[str, ...], role: Located) -> Located:
    """Return the driver or executor with the pod that Spark makes of it at `template`.

    Fields override `sparkConf`, and both the amounts of the pod template; an executor runs as many tasks at
    once as it has cores. Source: Spark on Kubernetes, Configuration; spark-operator, API v1beta2.
    """
    name, app, here = path[-1], at(root, *path[:-1]), role.place
    conf, fields = dict(pairs(app, "sparkConf")), dict(pairs(role))

    def own(field: str, of: str) -> LocatedMember | None:
        return fields.get(field) or conf.get(f"spark.{of}")

    cores = own("cores", f"{name}.cores") or LocatedMember(here, _scalar("1", here))
    limit = own("coreLimit", f"kubernetes.{name}.limit.cores")
    request = own("coreRequest", f"kubernetes.{name}.request.cores") or cores
    heap, overhead = (own(field, f"{name}.{field}") for field in ("memory", "memoryOverhead"))
    memory = LocatedMember(heap.place if heap else here, _scalar(_memory(app, heap, overhead), here))
    base, *others = items(role, "template", "spec", "containers") or (LocatedMapping({}, here),)
    variables = {
        "SPARK_EXECUTOR_CORES": cores if name == "executor" else None,
        "extraJavaOptions": own("javaOptions", f"{name}.extraJavaOptions"),
    }
    env = [
        _mapping(member.place, {"name": _scalar(variable, here), "value": member})
        for variable, member in variables.items()
        if member
    ]
    amounts = {
        "requests": {**dict(pairs(base, "resources", "requests")), "cpu": request, "memory": memory},
        "limits": {
            **dict(pairs(base, "resources", "limits")),
            **({"cpu": limit} if limit else {}),
            "memory": memory,
        },
    }
    container: dict[str, _Member] = {
        "name": _scalar(f"spark-kubernetes-{name}", here),
        "image": fields.get("image") or dict(pairs(app)).get("image") or _scalar("spark", here),
        **dict(pairs(base)),
        "resources": _mapping(here, {part: _mapping(here, of) for part, of in amounts.items()}),
        "env": LocatedList((*items(base, "env"), *items(role, "env"), *env), here),
    }
    spec: dict[str, _Member] = {
        **dict(pairs(role, "template", "spec")),
        "initContainers": LocatedList(
            (*items(role, "template", "spec", "initContainers"), *items(role, "initContainers")), here
        ),
        "containers": LocatedList((_mapping(here, container), *others, *items(role, "sidecars")), here),
    }
    metadata = {
        part: _mapping(here, {**dict(pairs(role, "template", "metadata", part)), **dict(pairs(role, part))})
        for part in ("labels", "annotations")
    }
    template = {"metadata": _mapping(here, metadata), "spec": _mapping(here, spec)}
    return _mapping(here, {**fields, "template": _mapping(here, template)})


def _memory(app: Located | None, heap: LocatedMember | None, overhead: LocatedMember | None) -> str:
    """Return request and limit of the memory: the heap, and an overhead that is a share of it."""
    usual = "0.1" if text(app, "type") in ("", "Java", "Scala") else "0.4"
    try:
        factor = float(text(app, "memoryOverheadFactor") or usual)
    except ValueError:
        factor = float(usual)
    mib = _mib(heap, _HEAP_MIB)
    return f"{round(mib + _mib(overhead, max(factor * mib, _LEAST_OVERHEAD_MIB)))}Mi"


def _mib(size: LocatedMember | None, default: float) -> float:
    """Return a JVM's size in MiB: `512m`, `2g`; a number alone is in MiB."""
    found = _JVM_SIZE.fullmatch(text(size.value)) if size else None
    return int(found[1]) * _MIB[found[2].lower()] if found else default


def kubevirt_domain(root: Located, path: tuple[str, ...], domain: Located) -> Located:
    """Return a virtual machine's domain with its vCPUs as threads; dedicated ones become its CPU request.

    They are limit and request, which KubeVirt keeps equal: no limit of the manifest is left to be judged.
    """
    here = place(domain, "cpu")
    parity = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
    annotations = dict(pairs(root, *path[:-2], "metadata", "annotations"))
    vcpus, beside = launcher_cpus(partial(text, domain), to_even=parity in annotations)
    amounts = {part: dict(pairs(domain, "resources", part)) for part in ("requests", "limits")}
    env: tuple[Located, ...] = ()
    if text(domain, "cpu", "dedicatedCpuPlacement") == "true":
        limit = amounts["limits"].pop("cpu", None)
        if vcpus:
            amounts["requests"]["cpu"] = LocatedMember(here, _scalar(str(vcpus + beside), here))
        elif limit:
            amounts["requests"].setdefault("cpu", limit)
    elif vcpus:
        env = (_mapping(here, {"name": _scalar("vCPUs", here), "value": _scalar(str(vcpus), here)}),)
    resources = {part: _mapping(here, of) for part, of in amounts.items() if of}
    members = {**dict(pairs(domain)), "resources": _mapping(here, resources) if resources else None}
    return _mapping(domain.place, {**members, "env": LocatedList(env, here)})


def _scalar(value: str, here: Position) -> LocatedScalar:
    return LocatedScalar(value, plain=False, place=here)


def _mapping(here: Position, members: Mapping[str, _Member]) -> LocatedMapping:
    """Return a mapping of what is not None; a value without a key of its own stands where it is."""
    return LocatedMapping(
        {
            key: member if isinstance(member, LocatedMember) else LocatedMember(member.place, member)
            for key, member in members.items()
            if member is not None
        },
        here,
    )
