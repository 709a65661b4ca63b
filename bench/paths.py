"""Source files on four everyday paths: what an engineer opens to follow one decision from end to end.

A file counts when one of its functions is called on the path. A file of which only the module body runs (an
import) does not count, nor does the standard library. Every path runs twice, with a fresh pod or reading each
time; the second run, which is warm, is counted. The node's policy is `pools`; the pod is Guaranteed and
requests 4 whole CPUs.

- PodChanged -> Bind: from the event PodChanged, which carries the decoded pod, to the instruction Bind of the
  scheduler's core. Two nodes, so that they are scored. Decoding the watch's JSON (3 files more) is left out.
- sysfs -> Machine: from the path of a copy of /sys and /proc to the Machine. 2 sockets, SMT, one PCI device.
- PodSeen -> Start: from the event PodSeen, which carries the pod's plan, to the instruction Start of the
  agent's state machine. Making the plan of the manifest (8 files more) is left out.
- counters -> advice: `corelane limits advise --cgroup DIRECTORY`, from the cgroup's files, read twice with
  10 s between, to the advice. Presenting the advice (`view/`) is left out.

`make bench-paths` prints the counts and writes build/bench/paths.json; `--list` prints the files, too.
"""

# ruff: noqa: T201
import argparse
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar
from unittest import mock

import msgspec
import report
from report import Row

import corelane
from corelane import node as nodes
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.events import ContainersListed, PodSeen, PodsListed
from corelane.app.limits import advise
from corelane.app.limits.sites import CgroupSource
from corelane.embedded.pods import pod_manifest
from corelane.embedded.pods.lifecycle import Lifecycle
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.embedded.pods.records import Start
from corelane.kube import translate
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine import sources
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState
from corelane.scheduler import events as scheduler_events
from corelane.scheduler.core import SchedulerCore as Scheduler
from corelane.scheduler.instructions import Bind

SOURCE = Path(corelane.__file__).parent
MACHINE = "socket:2 numa:2 core:8 smt:2"
CONFIG = NodeConfig("pools", reserved_count=2)

T = TypeVar("T")
Runs = Iterator[Callable[[], object]]
"""Runs of one path, prepared one by one, each with a fresh pod or reading."""


def files_called(run: Callable[[], object]) -> set[str]:
    """Call `run` and return the corelane files with functions that it called, relative to src/corelane."""
    called: set[CodeType] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = {Path(code.co_filename) for code in called if code.co_name != "<module>"}
    return {str(file.relative_to(SOURCE)) for file in files if file.is_relative_to(SOURCE)}


def pod_changed() -> Runs:
    """Schedule pods on two nodes."""
    core = Scheduler()
    for name in ("n0", "n1"):
        state = nodes.new(parse_spec(MACHINE, name=name), CONFIG)
        core.handle(scheduler_events.NodeChanged(0, None, _node(name)))
        core.handle(scheduler_events.TopologyChanged(0, None, _topology(name, state)))
    for number in count(1):
        pod = _decode(_pod(number, schedulerName=core.name), Pod)
        yield lambda: _bind(core, pod, number)  # noqa: B023


def _bind(core: Scheduler, pod: Pod, now: float) -> None:
    instructions = core.handle(scheduler_events.PodChanged(now, None, pod))
    while core.ready(now):
        instructions += core.handle(scheduler_events.CycleDue(now))
    assert any(isinstance(one, Bind) for one in instructions), instructions


def sysfs() -> Runs:
    """Read a machine from copies of /sys and /proc."""
    with tempfile.TemporaryDirectory() as top:
        for number in count():
            copy = Path(top) / str(number)
            _write(copy, dict(_sysfs(sockets=2, cores=4, threads=2)))
            yield lambda: sources.load(str(copy))  # noqa: B023


def pod_seen() -> Runs:
    """Start pods of a node."""
    core = Lifecycle(Allocation(nodes.new(parse_spec(MACHINE), CONFIG)))
    core.handle(ContainersListed(runs=(), at=0, now=0), PodsListed(at=0, now=0))
    for number in count(1):
        plan = pod_manifest.pod_plan(_decode(_pod(number, nodeName="n0"), RunPod), processes=False)
        yield lambda: _start(core, PodSeen(pod=plan, at=number, now=number))  # noqa: B023


def _start(core: Lifecycle, event: PodSeen) -> None:
    instructions = core.handle(event)
    assert any(isinstance(one, Start) for one in instructions), instructions


def counters() -> Runs:
    """Advise on a throttled container, whose counters go on while `corelane limits advise` sleeps."""
    with tempfile.TemporaryDirectory() as top:
        for number in count(1):
            group = Path(top) / str(number)
            _write(group, _cgroup(0, number))
            yield lambda: _advise(group, number)  # noqa: B023


def _advise(group: Path, number: int) -> None:
    now, seconds, printed = [0], 10, list[str]()

    def sleep(_: float) -> None:
        now[0] += seconds
        _write(group, _cgroup(now[0], number))

    source = advise.NodeSource(CgroupSource(root=group, groups=(group,)), seconds)
    with mock.patch("time.sleep", sleep), mock.patch("time.monotonic", side_effect=lambda: now[0]):
        advise.main(source, advise.AdviseOptions(form="json"), printed.append)
    assert '"answer": "change"' in printed[0], printed


# What the paths are fed.


def _decode(tree: object, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(tree), type=kind)


def _pod(number: int, **spec: str) -> object:
    amounts = {"cpu": "4", "memory": "1Gi"}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    meta = {"name": f"web-{number}", "namespace": "default", "uid": f"uid-{number}", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"containers": [container], **spec}, "status": {"phase": "Pending"}}


def _node(name: str) -> Node:
    allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    return _decode({"metadata": meta, "status": {"allocatable": allocatable, "conditions": ready}}, Node)


def _topology(name: str, state: NodeState) -> NodeResourceTopology:
    return _decode(translate.topology(state.machine, name, state), NodeResourceTopology)


def _sysfs(sockets: int, cores: int, threads: int) -> Iterator[tuple[str, str]]:
    """Files of a machine with one NUMA node and one L3 cache a socket, by path."""
    width = cores * threads
    cpu_dir, node_dir = "sys/devices/system/cpu", "sys/devices/system/node"
    for name in ("online", "present", "possible"):
        yield f"{cpu_dir}/{name}", f"0-{sockets * width - 1}"
    for name in ("isolated", "nohz_full"):
        yield f"{cpu_dir}/{name}", ""
    for cpu in range(sockets * width):
        socket, first = cpu // width, cpu - cpu % threads
        socket_cpus = f"{socket * width}-{socket * width + width - 1}"
        topology, cache = f"{cpu_dir}/cpu{cpu}/topology", f"{cpu_dir}/cpu{cpu}/cache/index3"
        yield f"{topology}/core_id", str(cpu % width // threads)
        yield f"{topology}/die_id", "0"
        yield f"{topology}/physical_package_id", str(socket)
        yield f"{topology}/thread_siblings_list", f"{first}-{first + threads - 1}"
        yield f"{topology}/core_siblings_list", socket_cpus
        yield f"{cache}/level", "3"
        yield f"{cache}/id", str(socket)
        yield f"{cache}/shared_cpu_list", socket_cpus
    for socket in range(sockets):
        node = f"{node_dir}/node{socket}"
        yield f"{node}/cpulist", f"{socket * width}-{socket * width + width - 1}"
        yield f"{node}/distance", " ".join("10" if other == socket else "21" for other in range(sockets))
        yield f"{node}/meminfo", f"Node {socket} MemTotal: 33554432 kB"
    device = "sys/bus/pci/devices/0000:3b:00.0"
    for name, text in {"class": "0x020000", "numa_node": "0", "local_cpulist": f"0-{width - 1}"}.items():
        yield f"{device}/{name}", text
    yield "proc/meminfo", "MemTotal: 67108864 kB"
    yield "proc/cmdline", "quiet"


def _cgroup(seconds: int, number: int) -> dict[str, str]:
    """Files of a cgroup v2 that has been throttled at 2 CPUs for so long; `number` varies by how much."""
    stat = {
        "usage_usec": seconds * (1_900_000 + 1000 * number),
        "nr_periods": seconds * 10,
        "nr_throttled": seconds * 6,
        "throttled_usec": seconds * (1_200_000 + 1000 * number),
    }
    return {
        "cgroup.procs": "1",
        "cpu.max": "200000 100000",
        "cpu.stat": "".join(f"{name} {value}\n" for name, value in stat.items()),
        "cpu.pressure": f"some total={seconds * 700_000}\nfull total={seconds * 400_000}",
        "cpuset.cpus.effective": "0-15",
        "proc/stat": "".join(f"cpu{cpu} {seconds * 10} 0 0 {seconds * 90} 0 0 0\n" for cpu in range(16)),
    }


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


PATHS = {
    "PodChanged -> Bind": (pod_changed, 24),
    "sysfs -> Machine": (sysfs, 8),
    "PodSeen -> Start": (pod_seen, 22),
    "counters -> advice": (counters, 20),
}


def files_on(path: Callable[[], Runs]) -> list[str]:
    """Run a path once to warm up, then once more, and return the files that the second run called."""
    runs = path()
    next(runs)()
    return sorted(file for file in files_called(next(runs)) if not file.startswith("view/"))


def main() -> None:
    parser = argparse.ArgumentParser(description="count the source files on everyday paths")
    parser.add_argument("--list", action="store_true", help="print the files of each path")
    listed = parser.parse_args().list
    rows = []
    for name, (path, target) in PATHS.items():
        files = files_on(path)
        rows.append(Row(name, len(files), "files", target))
        if listed:
            print(f"{name}: {len(files)} files", *files, "", sep="\n")
    report.show(rows)
    report.keep("paths", rows)


if __name__ == "__main__":
    main()
