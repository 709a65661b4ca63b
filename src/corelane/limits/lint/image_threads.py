"""Software known by its image: what starts a thread for every CPU of the node, and what reads its limit.

A setting in the manifest comes first (`thread_settings`). Where a tag is no version (`latest`, a digest), the
version is taken as recent: only a tag that shows an older one counts as reading no limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corelane.limits.lint.located import Located, items, place, text

_JAVA_8: Final = re.compile(r"\b8u(\d{2,3})\b")
_VERSION: Final = re.compile(r"\bv?(\d{1,4})(?:\.(\d{1,4}))?")
_OFFICIAL_NGINX: Final = re.compile(r"(^|(?<!bitnami)(?<!bitnamilegacy)/)nginx(-unprivileged)?$")
"""Also in mirrors of any name; Bitnami's image has an entrypoint of its own."""
_BESIDE: Final = re.compile(
    r"[-_](?:exporter|operator|controller|webhook|adapter|router|gateway|ui|dashboard|sidecar)(?![a-z])"
)
"""Programs about the software that an image is named after, such as pytorch-operator."""


@dataclass(frozen=True, slots=True)
class CountsCPUs:
    """Software known by its image to start as many threads as it sees CPUs, and how to set fewer."""

    image: re.Pattern[str]
    what: str
    remedy: str
    variable: str = ""
    """A setting with which the entrypoint of its official image reads the limit instead."""
    official: re.Pattern[str] | None = None
    """That image."""
    unless: re.Pattern[str] | None = None
    """Arguments with which it starts fewer by itself."""


_COUNTERS: Final = (
    CountsCPUs(
        re.compile(r"(^|/)nginx(-unprivileged)?$"),
        "nginx starts a worker for every CPU of the node (worker_processes auto)",
        "set worker_processes to the CPUs of the service",
        "NGINX_ENTRYPOINT_WORKER_PROCESSES_AUTOTUNE=1",
        _OFFICIAL_NGINX,
    ),
    CountsCPUs(
        re.compile(r"pytorch|torchserve|text-generation-inference|text-embeddings-inference|vllm"),
        "PyTorch's OpenMP pool has a thread for every core of the node",
        "set OMP_NUM_THREADS to the CPUs of the service",
        # vLLM's workers of several processes set OMP_NUM_THREADS=1 (vllm/executor/multiproc_worker_utils.py).
        unless=re.compile(r"--(?:tensor|pipeline)-parallel-size[=\s]+(?:[2-9]|[1-9]\d)|\s-[tp]p[=\s]+[2-9]"),
    ),
    CountsCPUs(
        re.compile(r"tensorflow|tritonserver|onnxruntime|sentence-transformers"),
        "its compute pools have a thread for every CPU of the node",
        "set OMP_NUM_THREADS and TF_NUM_INTRAOP_THREADS to the CPUs of the service",
    ),
    CountsCPUs(
        re.compile(r"(^|/)(envoy|proxyv2|haproxy)$"),
        "the proxy starts a worker for every CPU that it sees",
        "set its concurrency (Envoy --concurrency, HAProxy nbthread)",
    ),
)


@dataclass(frozen=True, slots=True)
class ReadsLimit:
    """Software that sizes its threads by the CPU limit: by itself from a version on, or by a variable."""

    what: str
    image: re.Pattern[str]
    source: str
    since: tuple[int, int] | None = None
    """The first version that reads the limit without a variable; None if none does."""
    variable: str = ""
    """An environment variable that has it read the limit, from `variable_since` on."""
    variable_since: tuple[int, int] = (0, 0)
    off: tuple[str, str] = ("", "")
    """A variable, and the values (a pattern) with which it does not."""
    entrypoint: bool = False
    """Whether the image's own entrypoint reads it, so that `command` turns that off."""


READERS: Final = (
    ReadsLimit(
        "Istio's proxy",
        re.compile(r"(^|/)proxyv2$"),
        "Istio 1.18 upgrade notes, proxy concurrency",
        (1, 18),
        "ISTIO_CPU_LIMIT",
        off=("PROXY_CONFIG", r".*\bconcurrency\"?\s*:\s*0\b.*"),
    ),
    ReadsLimit(
        "Envoy",
        re.compile(r"(^|/)envoy$"),
        "Envoy 1.37.0 release notes, concurrency",
        (1, 37),
        off=("ENVOY_CGROUP_CPU_DETECTION", "false"),
    ),
    ReadsLimit(
        "nginx's official image",
        _OFFICIAL_NGINX,
        "docker-nginx, 30-tune-worker-processes.sh (from 1.19.6)",
        variable="NGINX_ENTRYPOINT_WORKER_PROCESSES_AUTOTUNE",
        variable_since=(1, 19),
        entrypoint=True,
    ),
    ReadsLimit(
        "the JVM",
        re.compile(r"openjdk|temurin|corretto|(^|[/-])(jre|jdk|java)([-_]|$|\d)"),
        "JDK-8146115 (JDK 10; 8u191)",
        (10, 0),
    ),
    ReadsLimit(
        "Go", re.compile(r"(^|/)golang$"), "Go 1.25 release notes, container-aware GOMAXPROCS", (1, 25)
    ),
    ReadsLimit(
        ".NET",
        re.compile(r"(^|/)dotnet/(aspnet|runtime|sdk|nightly)|(^|[/-])dotnet([-_]|$)"),
        "Environment.ProcessorCount, rounded up; not in .NET Core 3.1 (dotnet/runtime issue 622)",
        (5, 0),
    ),
    ReadsLimit("automaxprocs", re.compile(r"automaxprocs"), "go.uber.org/automaxprocs, all versions", (0, 0)),
)
"""Kept with the version from which the limit is read, and where that stands."""


def counts_node_cpus(image: str, node: Located | None = None) -> CountsCPUs | None:
    """Whether an image starts threads by the node's CPUs, as the container `node` runs it; None if not."""
    bare, tag = _parts(image)
    if _BESIDE.search(bare.rpartition("/")[2]) or (node is not None and _reads_limit(bare, tag, node)):
        return None
    found = next((one for one in _COUNTERS if one.image.search(bare)), None)
    if found and found.unless and node is not None and found.unless.search(_command_line(node)):
        return None
    return found


def readable_variable(known: CountsCPUs, image: str) -> str:
    """The setting with which this image reads the limit; empty where it has none."""
    official = known.official is not None and known.official.search(_parts(image)[0])
    return known.variable if official else ""


def _command_line(node: Located) -> str:
    return " ".join(text(word) for part in ("command", "args") for word in items(node, part))


def _parts(image: str) -> tuple[str, str]:
    """Name and tag of an image, without a digest."""
    head, slash, tail = image.partition("@")[0].rpartition("/")
    name, _, tag = tail.partition(":")
    return head + slash + name, tag


def _reads_limit(bare: str, tag: str, node: Located) -> bool:
    variables = {text(one, "name"): one for one in items(node, "env")}
    return any(
        reads_limit(one, tag, variables, own=own_entrypoint(node))
        for one in READERS
        if one.image.search(bare)
    )


def own_entrypoint(node: Located) -> bool:
    """Whether the container runs the entrypoint of its image."""
    return not items(node, "command")


def reads_limit(one: ReadsLimit, tag: str, variables: Mapping[str, Located], *, own: bool) -> bool:
    """Whether a version of it reads the limit, with these variables; `own`: under its image's entrypoint."""
    name, value = one.off
    if name in variables and re.fullmatch(value, text(variables[name], "value"), re.DOTALL | re.IGNORECASE):
        return False
    if one.variable in variables and _set(variables[one.variable]):
        return (own or not one.entrypoint) and _version(tag) >= one.variable_since
    return one.since is not None and _version(tag) >= one.since


def _set(entry: Located) -> bool:
    """Whether a variable has a value, or takes one from somewhere."""
    return bool(text(entry, "value")) or place(entry, "valueFrom") != place(entry)


def _version(tag: str) -> tuple[int, int]:
    """Major and minor version in a tag; very high where there is none. Java 8u191 has what Java 10 has."""
    if (java8 := _JAVA_8.search(tag)) and int(java8[1]) >= 191:
        return (10, 0)
    found = _VERSION.search(tag)
    return (int(found[1]), int(found[2] or 0)) if found else (9999, 0)
