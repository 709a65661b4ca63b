"""How many threads a container runs at once, by its manifest: environment, arguments, image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from corelane import quantity
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
"""Variables; Spark's and KubeVirt's are set by their operators (`operator_fields`)."""
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


def at_once(found: Iterable[ThreadSetting]) -> int | None:
    """The threads that run at once: processes times the largest pool; None where only parts are set."""
    counted = [(one.count, one.processes) for one in found if one.valid and one.count and not one.partial]
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
            for found in _PROXY_CONFIG.finditer(text(entry, "value")):
                yield _counted("concurrency in PROXY_CONFIG", found[1], here)
        elif name in _THREADS or name in _PROCESSES:
            yield from _entry(entry, name, text(node, "name"), resources)


def _counted(
    name: str, written: str, here: Position, *, processes: bool = False, env: bool = False
) -> ThreadSetting:
    """A number that is written out; OpenMP takes a list, one for each level of nesting."""
    first = written.partition(",")[0].strip()
    count = int(first) if first.isdecimal() and len(first) <= _DIGITS else 0
    return ThreadSetting(name, count or None, processes, here, written, valid=count > 0, env=env)


def _entry(
    entry: Located, name: str, container: str, resources: ManifestResources
) -> Iterator[ThreadSetting]:
    """A count, as a value or taken from the container's resources; other sources are unknown here."""
    reference = at(entry, "valueFrom", "resourceFieldRef")
    if written := text(entry, "value"):
        yield _counted(name, written, place(entry, "value"), processes=name in _PROCESSES, env=True)
    elif text(reference, "containerName") in ("", container):
        yield from _from_field(entry, reference, name, resources)


def _from_field(
    entry: Located, reference: Located | None, name: str, resources: ManifestResources
) -> Iterator[ThreadSetting]:
    """`limits.cpu` or `requests.cpu`, in whole CPUs rounded up, unless a divisor says otherwise."""
    source = text(reference, "resource")
    if source in ("limits.cpu", "requests.cpu"):
        amount = resources.limit("cpu") if source == "limits.cpu" else resources.request("cpu")
        count = -(-amount // _divisor(text(reference, "divisor"))) or None
        yield ThreadSetting(
            name, count, name in _PROCESSES, place(entry, "valueFrom"), source, source, env=True
        )


def _divisor(written: str) -> int:
    try:
        return max(quantity.parse(written or "1").nano, 0) or 10**9
    except ValueError:
        return 10**9


def _jvm_options(node: Located) -> Iterator[ThreadSetting]:
    """A JVM's options in any variable or argument; 0 leaves a number to the JVM."""
    sources = [
        (_READ_FIRST.get(text(entry, "name"), 1), text(entry, "value"), place(entry, "value"))
        for entry in items(node, "env")
    ]
    sources.append((2, *_line(node)))
    last = {
        found[1]: (found[2], here)
        for _, value, here in sorted(sources, key=lambda source: source[0])
        for found in _JVM_OPTION.finditer(value)
    }
    for name, partial in _JVM_COUNTS.items():
        written, here = last.get(name, ("0", NOWHERE))
        if int(written):
            yield replace(_counted(name, written, here), partial=partial)


def _line(node: Located) -> tuple[str, Position]:
    """The command line, and where its end stands."""
    line = " ".join(text(word) for part in ("command", "args") for word in items(node, part))
    return line, place(node, "args" if at(node, "args") else "command")


def _command_line(node: Located) -> Iterator[ThreadSetting]:
    line, here = _line(node)
    image = text(node, "image").partition("@")[0].rpartition("/")[2].partition(":")[0]
    for name, processes, pattern in _patterns(line, image):
        if found := pattern.search(line):
            yield _counted(name, found[1], here, processes=processes)


def _patterns(line: str, image: str) -> Iterator[tuple[str, bool, re.Pattern[str]]]:
    if image in _PROXIES or "envoy" in line:
        yield "--concurrency", False, _CONCURRENCY
    yield "worker_processes", True, _NGINX
    if server := _SERVERS.search(line):
        yield f"{server[1]} --workers", True, _WORKERS
        yield f"{server[1]} --threads", False, _WORKER_THREADS
