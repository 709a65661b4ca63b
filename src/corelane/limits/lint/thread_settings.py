"""The number of threads of a container, by its manifest: environment, arguments, image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from corelane.limits.lint import located
from corelane.limits.lint.located import NOWHERE, Located, ManifestResources, Position, at, items, place, text

_THREADS: Final = (
    "GOMAXPROCS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "DOTNET_PROCESSOR_COUNT",
    "PUMA_MAX_THREADS",
    "JULIA_NUM_THREADS",
    "SPARK_EXECUTOR_CORES",
    "vCPUs",
)
"""Variables; Spark's and KubeVirt's are set by their operators."""
_PROCESSES: Final = ("WEB_CONCURRENCY", "GUNICORN_WORKERS", "UVICORN_WORKERS")
_JAVA: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS", "_JAVA_OPTIONS")
_JVM_IMAGE: Final = re.compile(r"openjdk|temurin|corretto|(^|[/-])(jre|jdk|java)\b")
_JVM_OPTION: Final = re.compile(r"(-XX:\w+|-D[\w.]+|-Xgcthreads)=?(\d{1,6})\b")
_JVM_COUNTS: Final = {
    "-XX:ActiveProcessorCount": False,
    "-XX:ParallelGCThreads": True,
    "-XX:ConcGCThreads": True,
    "-Xgcthreads": True,
    "-Djava.util.concurrent.ForkJoinPool.common.parallelism": True,
    "-Djdk.virtualThreadScheduler.parallelism": True,
}
"""Options of HotSpot and OpenJ9, and whether they count one pool of threads beside others."""
_READ_FIRST: Final = {"JAVA_TOOL_OPTIONS": 0, "_JAVA_OPTIONS": 3}
"""The order in which a JVM reads options: 1 for other variables, 2 for the command line. The last counts."""
_NGINX: Final = re.compile(r"\bworker_processes\s+(\d{1,6})\s*;")
_WORKERS: Final = re.compile(r"(?:--workers[= ]+|(?:^| )-w ?)(\d{1,6})\b")
_WORKER_THREADS: Final = re.compile(r"--threads[= ]+(\d{1,6})\b")
_CONCURRENCY: Final = re.compile(r"--concurrency[= ]+(\d{1,6})\b")
_PROXY_CONFIG: Final = re.compile(r"(?:^|[{,\s])\"?concurrency\"?\s*:\s*([1-9]\d{0,5})\b")
_PROXIES: Final = frozenset({"envoy", "proxyv2"})
_DIGITS: Final = 6
_SERVERS: Final = re.compile(r"\b(gunicorn|uvicorn|hypercorn|granian)\b")


@dataclass(frozen=True, slots=True)
class ThreadSetting:
    """A setting that fixes a number of threads, or of processes with threads each.

    `count` is None where it is read from the CPU limit and there is none, so that the node's CPUs count;
    `written` is what stands there, and `valid` whether a runtime can use it.
    """

    name: str
    count: int | None
    processes: bool = False
    place: Position = NOWHERE
    written: str = ""
    from_field: str = ""
    """limits.cpu or requests.cpu, where a resourceFieldRef takes it from there; else empty."""
    valid: bool = True
    env: bool = False
    """Whether an environment variable of this name sets it; else an argument or an option in another one."""
    partial: bool = False
    """Whether other threads, of a number not set here, run beside these, as beside a JVM's collector."""


def at_once(thread_settings: Iterable[ThreadSetting]) -> int | None:
    """The threads that run at once: processes times the largest pool; None where only parts are set."""
    counted = [
        (setting.count, setting.processes)
        for setting in thread_settings
        if setting.valid and setting.count and not setting.partial
    ]
    pools = [count for count, processes in counted if not processes]
    processes = [count for count, processes in counted if processes]
    return max(processes, default=1) * max(pools, default=1) if counted else None


def is_jvm(node: Located, image: str) -> bool:
    """Whether a container is seen to run Java, which sizes its pools by the limit, or else by the node."""
    named = any(
        text(entry, "name") in _JAVA or "-XX:" in text(entry, "value") for entry in items(node, "env")
    )
    first = next((text(word).rpartition("/")[2] for word in items(node, "command")), "")
    return named or first == "java" or _JVM_IMAGE.search(image) is not None


def settings(node: Located, resources: ManifestResources) -> tuple[ThreadSetting, ...]:
    """Every setting in a container's environment and command line that sets the number of threads."""
    return (*_environment(node, resources), *_command_line(node), *_jvm_options(node))


def _environment(node: Located, resources: ManifestResources) -> Iterator[ThreadSetting]:
    for entry in items(node, "env"):
        name, here = text(entry, "name"), place(entry, "value")
        if name == "PROXY_CONFIG":
            for match in _PROXY_CONFIG.finditer(text(entry, "value")):
                yield _counted("concurrency in PROXY_CONFIG", match[1], here)
        elif name in _THREADS or name in _PROCESSES:
            container = text(node, "name")
            reference = at(entry, "valueFrom", "resourceFieldRef")
            if written := text(entry, "value"):
                yield _counted(name, written, place(entry, "value"), processes=name in _PROCESSES, env=True)
            elif text(reference, "containerName") in ("", container):
                source = text(reference, "resource")
                if source in ("limits.cpu", "requests.cpu"):
                    amount = resources.limit("cpu") if source == "limits.cpu" else resources.request("cpu")
                    # In whole CPUs rounded up, unless a divisor says otherwise.
                    divisor = located.nano_units(text(reference, "divisor")) or 10**9
                    count = -(-amount // divisor) or None
                    yield ThreadSetting(
                        name, count, name in _PROCESSES, place(entry, "valueFrom"), source, source, env=True
                    )


def _counted(
    name: str, written: str, here: Position, *, processes: bool = False, env: bool = False
) -> ThreadSetting:
    """A number that is written out; OpenMP takes a list, one for each level of nesting."""
    first = written.partition(",")[0].strip()
    count = int(first) if first.isdecimal() and len(first) <= _DIGITS else 0
    return ThreadSetting(name, count or None, processes, here, written, valid=count > 0, env=env)


def _jvm_options(node: Located) -> Iterator[ThreadSetting]:
    """A JVM's options in any variable or argument; 0 leaves a number to the JVM."""
    sources = [
        (_READ_FIRST.get(text(entry, "name"), 1), text(entry, "value"), place(entry, "value"))
        for entry in items(node, "env")
    ]
    sources.append((2, *_line(node)))
    last = {
        match[1]: (match[2], here)
        for _, value, here in sorted(sources, key=lambda source: source[0])
        for match in _JVM_OPTION.finditer(value)
    }
    for name, partial in _JVM_COUNTS.items():
        written, here = last.get(name, ("0", NOWHERE))
        if int(written):
            yield replace(_counted(name, written, here), partial=partial)


def _line(node: Located) -> tuple[str, Position]:
    """The command line, and where its end stands."""
    return " ".join(located.command_line(node)), place(node, "args" if at(node, "args") else "command")


def _command_line(node: Located) -> Iterator[ThreadSetting]:
    line, here = _line(node)
    image = text(node, "image").partition("@")[0].rpartition("/")[2].partition(":")[0]
    patterns = [("worker_processes", True, _NGINX)]
    if image in _PROXIES or "envoy" in line:
        patterns.insert(0, ("--concurrency", False, _CONCURRENCY))
    if server := _SERVERS.search(line):
        patterns.append((f"{server[1]} --workers", True, _WORKERS))
        patterns.append((f"{server[1]} --threads", False, _WORKER_THREADS))
    for name, processes, pattern in patterns:
        if match := pattern.search(line):
            yield _counted(name, match[1], here, processes=processes)


# Software known by its image: what starts a thread for every CPU of the node, and what reads its limit.
#
# A setting in the manifest comes first (`thread_settings`). Where a tag is no version (`latest`, a digest),
# the version is taken as recent: only a tag that shows an older one counts as reading no limit.


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
    software = next((counter for counter in _COUNTERS if counter.image.search(bare)), None)
    if software and software.unless and node is not None and software.unless.search(_line(node)[0]):
        return None
    return software


def readable_variable(software: CountsCPUs, image: str) -> str:
    """The setting with which this image reads the limit; empty where it has none."""
    official = software.official is not None and software.official.search(_parts(image)[0])
    return software.variable if official else ""


def _parts(image: str) -> tuple[str, str]:
    """Name and tag of an image, without a digest."""
    head, slash, tail = image.partition("@")[0].rpartition("/")
    name, _, tag = tail.partition(":")
    return head + slash + name, tag


def _reads_limit(bare: str, tag: str, node: Located) -> bool:
    variables = {text(entry, "name"): entry for entry in items(node, "env")}
    return any(
        reads_limit(reader, tag, variables, own=own_entrypoint(node))
        for reader in READERS
        if reader.image.search(bare)
    )


def own_entrypoint(node: Located) -> bool:
    """Whether the container runs the entrypoint of its image."""
    return not items(node, "command")


def reads_limit(reader: ReadsLimit, tag: str, variables: Mapping[str, Located], *, own: bool) -> bool:
    """Whether a version of it reads the limit, with these variables; `own`: under its image's entrypoint."""
    name, value = reader.off
    if name in variables and re.fullmatch(value, text(variables[name], "value"), re.DOTALL | re.IGNORECASE):
        return False
    entry = variables.get(reader.variable)
    # Whether the variable has a value, or takes one from somewhere.
    if entry and (text(entry, "value") or place(entry, "valueFrom") != place(entry)):
        return (own or not reader.entrypoint) and _version(tag) >= reader.variable_since
    return reader.since is not None and _version(tag) >= reader.since


def _version(tag: str) -> tuple[int, int]:
    """Major and minor version in a tag; very high where there is none. Java 8u191 has what Java 10 has."""
    if (java8 := _JAVA_8.search(tag)) and int(java8[1]) >= 191:
        return (10, 0)
    match = _VERSION.search(tag)
    return (int(match[1]), int(match[2] or 0)) if match else (9999, 0)
