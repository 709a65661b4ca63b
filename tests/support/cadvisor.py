"""What a kubelet's cAdvisor makes of a copy of /sys, read file by file as it reads them: the judge of ours.

`getCoresInfo` and `addCacheInfo` of cAdvisor's sysinfo.go, and the CPU manager's `topology.Discover`.
"""

import re

from corelane.cpuset import CPUSet
from corelane.kernel.files import Tree

Core = tuple[int, int]
"""The kernel's core id and package id, by which cAdvisor knows a core of a node."""


class Missing(Exception):  # noqa: N818
    """A file without which cAdvisor gives up a node's caches."""


def rows(system: Tree) -> list[tuple[int, int, int, int, int]]:
    """CPU, core (its lowest CPU), socket, NUMA node and uncore cache of every CPU that the kubelet sees.

    `system` is a copy of /sys/devices/system; one without nodes has none.
    """
    seen: dict[int, tuple[int, int, int, int, int]] = {}
    for node in _directories(system, "node", "node"):
        online = [cpu for cpu in _of_node(system, f"node/node{node}") if _online(system, cpu)]
        cores: dict[Core, list[int]] = {}
        for cpu in online:
            place = [
                _number(system, f"cpu/cpu{cpu}/topology/{name}")
                for name in ("core_id", "physical_package_id")
            ]
            if place[0] is not None and place[1] is not None:
                cores.setdefault((place[0], place[1]), []).append(cpu)
        caches = _uncore(system, cores)
        for (core_id, package), threads in cores.items():
            cache = caches.get((core_id, package), package)
            seen |= {cpu: (cpu, min(threads), package, node, cache) for cpu in threads}
    return sorted(seen.values())


def _of_node(system: Tree, where: str) -> list[int]:
    """The CPUs that the node links to; copies that lack the links still have the mask."""
    mask = system.read(f"{where}/cpumap")
    return _directories(system, where, "cpu") or sorted(CPUSet.from_hex(_stripped(mask or "0")), key=str)


def _stripped(text: str) -> str:
    return text.strip(" \n\0")


def _directories(system: Tree, where: str, kind: str) -> list[int]:
    """The numbers behind a name, in the order of the names, as a glob gives them."""
    return [
        int(name[len(kind) :]) for name in sorted(system.names(where)) if re.fullmatch(f"{kind}[0-9]+", name)
    ]


def _number(system: Tree, path: str) -> int | None:
    text = system.read(path)
    return None if text is None else int(_stripped(text))


def _online(system: Tree, cpu: int) -> bool:
    online = system.read("cpu/online")
    return online is None or cpu in CPUSet.parse(_stripped(online))


def _uncore(system: Tree, cores: dict[Core, list[int]]) -> dict[Core, int]:
    """The id of the first cache above level 2 that is not exactly the node; up to the first broken file."""
    found: dict[Core, int] = {}
    for core, threads in cores.items():
        where = f"cpu/cpu{threads[0]}/cache"
        indexes = [name for name in sorted(system.names(where)) if name.startswith("index")]
        try:
            if not indexes:
                raise Missing
            caches = [_cache(system, f"{where}/{index}") for index in indexes]
        except Missing:
            break
        for cache_id, level, size in caches:
            if level > 2 and size != len(cores) * len(threads):
                found.setdefault(core, cache_id)
    return found


def _cache(system: Tree, where: str) -> tuple[int, int, int]:
    texts = [system.read(f"{where}/{name}") for name in ("id", "size", "level", "type", "shared_cpu_map")]
    if None in texts:
        raise Missing(where)
    cache_id, _, level, _, mask = (_stripped(text or "") for text in texts)
    return int(cache_id), int(level), sum(int(word, 16).bit_count() for word in mask.split(","))
