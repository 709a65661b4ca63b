"""How fast sets of 384 CPUs combine, and how fast a 256-CPU machine is read from a copy of its sysfs."""

import random
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import thread_time_ns
from timeit import Timer

from report import Row, best

from corelane.cpuset import CPUSet, format_hex, format_list
from corelane.machine import Machine, sources

OPERATIONS = ("a | b", "a & b", "a ^ b", "a - b", "a == b", "a < b", "a <= b", "a >= b", "a > b")
OPERATION_NS, DIRECTORY_MS, ARCHIVE_MS = 250, 100, 1000
SERVER = "socket:2 numa:4 l3:2 core:8 smt:2"
CPU = "sys/devices/system/cpu"


def rows() -> Iterator[Row]:
    """Set operations, and how long a machine takes to read."""
    chance = random.Random(1)  # noqa: S311
    names = {name: CPUSet.from_mask(chance.getrandbits(384) | 1 << 383) for name in "ab"}
    for operation in OPERATIONS:
        taken = min(Timer(operation, globals=names).repeat(60, 2000)) * 1e9 / 2000
        yield Row(f"CPUSet of 384 CPUs, {operation}", taken, "ns", OPERATION_NS)
    where = Path(tempfile.mkdtemp(prefix="corelane-bench-"))
    try:
        archive = _written(where)
        for name, source, target in (
            ("a directory", where / "snap", DIRECTORY_MS),
            ("a tar.bz2", archive, ARCHIVE_MS),
        ):
            taken = best(lambda: sources.load(str(source)), thread_time_ns) / 1e6  # noqa: B023
            yield Row(f"read a machine of 256 CPUs from {name}", taken, "ms", target)
    finally:
        shutil.rmtree(where)


def _written(where: Path) -> Path:
    """A copy of /sys with as many files as a real one has, and an archive of it."""
    for path, text in _files(sources.load(SERVER)):
        file = where / "snap" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    archive = where / "snap.tar.bz2"
    with tarfile.open(archive, "w:bz2") as tar:
        tar.add(where / "snap", "snap")
    return archive


def _files(made: Machine) -> Iterator[tuple[str, str]]:
    for name in ("online", "present", "possible"):
        yield f"{CPU}/{name}", str(made.online)
    masks = {unit: dict(getattr(made, f"{unit}_masks")) for unit in ("core", "l3", "socket")}
    for cpu in made.cpus:
        where = f"{CPU}/cpu{cpu.id}"
        for name, number in {"core_id": cpu.core_id, "physical_package_id": cpu.socket, "die_id": 0}.items():
            yield f"{where}/topology/{name}", str(number)
        of = {
            "core": masks["core"][cpu.core],
            "socket": masks["socket"][cpu.socket],
            "l3": masks["l3"][cpu.l3],
        }
        for name, unit in _SETS.items():
            yield f"{where}/topology/{name}", format_hex(of[unit], 256)
            yield f"{where}/topology/{name}_list", format_list(of[unit])
        for index, level in enumerate((1, 1, 2, 3)):
            yield from _cache(
                f"{where}/cache/index{index}", level, cpu.l3, of["l3" if level == 3 else "core"]
            )
        for name in ("cpuinfo_max_freq", "cpuinfo_min_freq", "scaling_cur_freq", "scaling_max_freq"):
            yield f"{where}/cpufreq/{name}", "3000000"
    for node in made.nodes:
        where = f"sys/devices/system/node/node{node.id}"
        yield f"{where}/cpulist", str(node.cpus)
        yield f"{where}/cpumap", node.cpus.to_hex(256)
        yield f"{where}/distance", " ".join(str(far) for far in node.distances.values())
        yield f"{where}/meminfo", f"Node {node.id} MemTotal:  {node.memory >> 10} kB"


_SETS = {
    "thread_siblings": "core",
    "core_cpus": "core",
    "cluster_cpus": "core",
    "core_siblings": "socket",
    "package_cpus": "socket",
    "die_cpus": "socket",
}


def _cache(where: str, level: int, number: int, mask: int) -> Iterator[tuple[str, str]]:
    facts = {"level": level, "id": number, "size": "32768K", "type": "Unified", "coherency_line_size": 64}
    facts |= {"number_of_sets": 64, "ways_of_associativity": 16, "physical_line_partition": 1}
    yield from ((f"{where}/{name}", str(value)) for name, value in facts.items())
    yield f"{where}/shared_cpu_map", format_hex(mask, 256)
    yield f"{where}/shared_cpu_list", format_list(mask)
