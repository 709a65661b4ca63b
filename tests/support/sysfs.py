"""Copies of /sys and /proc made from a machine: files in a dictionary that a test may bend before writing."""

import io
import tarfile
from pathlib import Path

from corelane.cpuset import CPUSet, format_hex, format_list
from corelane.machine.model import Machine

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def files(machine: Machine) -> dict[str, str]:
    """Every file that discovery reads, with what the kernel of such a machine would write."""
    present = (machine.online | machine.offline).mask
    found = {
        f"{CPU}/online": f"{machine.online}\n",
        f"{CPU}/present": f"{format_list(present)}\n",
        f"{CPU}/possible": f"{format_list(present)}\n",
        f"{CPU}/isolated": f"{machine.isolated}\n",
        f"{CPU}/nohz_full": f"{machine.nohz_full or '(null)'}\n",
        "proc/meminfo": f"MemTotal:  {sum(node.memory for node in machine.nodes) // 1024} kB\n",
    }
    for cpu in machine.offline:
        found[f"{CPU}/cpu{cpu}/online"] = "0\n"
    for cpu in machine.cpus:
        found |= _cpu(machine, cpu, present.bit_length())
    for node in machine.nodes:
        found |= _node(machine, node, present.bit_length())
    return found


def _sets(name: str, mask: int, width: int) -> dict[str, str]:
    return {f"{name}_list": f"{format_list(mask)}\n", name: f"{format_hex(mask, width)}\n"}


def _cpu(machine, cpu, width):
    where = f"{CPU}/cpu{cpu.id}"
    siblings = machine.siblings(cpu.id)
    package = dict(machine.socket_masks)[cpu.socket]
    cluster = sum(1 << other.id for other in machine.cpus if other.cluster == cpu.cluster)
    found = {
        f"{where}/topology/core_id": f"{cpu.core_id}\n",
        f"{where}/topology/physical_package_id": f"{cpu.socket}\n",
        f"{where}/topology/die_id": f"{cpu.die}\n",
        f"{where}/cache/index0/level": "1\n",
        f"{where}/cache/index3/level": "3\n",
        f"{where}/cache/index3/id": f"{cpu.l3}\n",
        **_sets(f"{where}/topology/thread_siblings", siblings, width),
        **_sets(f"{where}/topology/core_siblings", package, width),
        **_sets(f"{where}/topology/cluster_cpus", cluster, width),
    }
    l3 = dict(machine.l3_masks)[cpu.l3]
    found[f"{where}/cache/index3/shared_cpu_list"] = f"{format_list(l3)}\n"
    found[f"{where}/cache/index3/shared_cpu_map"] = f"{format_hex(l3, width)}\n"
    if cpu.max_khz:
        found[f"{where}/cpufreq/cpuinfo_max_freq"] = f"{cpu.max_khz}\n"
    if cpu.capacity:
        found[f"{where}/cpu_capacity"] = f"{cpu.capacity}\n"
    return found


def _node(machine, node, width):
    where = f"{NODE}/node{node.id}"
    found = {
        f"{where}/cpulist": f"{node.cpus}\n",
        f"{where}/cpumap": f"{format_hex(node.cpus.mask, width)}\n",
        f"{where}/distance": " ".join(str(node.distances[other.id]) for other in machine.nodes) + "\n",
        f"{where}/meminfo": f"\nNode {node.id} MemTotal:    {node.memory // 1024} kB\n",
    }
    for size, count in node.hugepages.items():
        found[f"{where}/hugepages/hugepages-{size}kB/nr_hugepages"] = f"{count}\n"
    return found


def write(root: Path, found: dict[str, str]) -> Path:
    for path, text in found.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def pack(path: Path, found: dict[str, str], prefix: str = "", mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, text in found.items():
            info = tarfile.TarInfo(f"{prefix}{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def without(found: dict[str, str], *endings: str) -> dict[str, str]:
    """The files whose path has none of these endings or directories in it."""
    return {path: text for path, text in found.items() if not any(end in path for end in endings)}


def groups(pairs) -> set[CPUSet]:
    """The groups of CPUs in (cpu, label) pairs, whatever the labels are."""
    found = {}
    for cpu, label in pairs:
        found.setdefault(label, []).append(cpu)
    return {CPUSet(cpus) for cpus in found.values()}
