"""What must hold of a soak's pods: always by the kernel, and once all is settled by API, ledger and files."""

import asyncio
import json
import time
from itertools import combinations
from pathlib import Path
from typing import Final

import soak_kernel as kernel
from soak_kernel import Identity
from soak_pods import EXCLUSIVE, PODS, Pod, Workload, condition
from soak_up import NoAnswer, Object, Up

RESOURCE_STATUS: Final = "scheduling.koordinator.sh/resource-status"
SHARES_WITH: Final = {"lse": (), "lsr": ("effort", "family", "stubborn", "chatty", "job")}
"""Kinds of best-effort pods, which alone may run on the CPUs of an LSR pod."""
PODS_GO_ON: Final = "no pod lost, restarted or ended"
ONE_OWNER: Final = "no CPU with two owners"
API_AGREES: Final = "API agrees with the kernel"
LEDGER_AGREES: Final = "ledger agrees with the kernel"
NOTHING_LEFT: Final = "nothing left of pods that are gone"
_OLD: Final = 5.0
"""Seconds after which a temporary file is one that was left."""


class Checks:
    """Every check returns sentences about what does not hold."""

    def __init__(self, up: Up, workload: Workload) -> None:
        self.up, self.workload = up, workload
        self.instances: set[str] = set()

    # At every moment, also while corelane is dead.

    def kernel(self) -> dict[str, list[str]]:
        """Every live pod has the processes that it had, and no exclusive CPU has a second user."""
        live = self.workload.live()
        processes = self.workload.marks.processes()
        cpus = {
            name: frozenset().union(*(kernel.allowed(one.pid) for one in of))
            for name, of in processes.items()
        }
        confirmed = [pod for pod in live if pod.kind in EXCLUSIVE and pod.pinned]
        shared = [fault for pod in confirmed for fault in self._shared(pod, cpus)]
        return {
            PODS_GO_ON: [fault for pod in live for fault in _replaced(pod, processes)],
            ONE_OWNER: shared + self._overlaps(cpus),
        }

    def _shared(self, pod: Pod, cpus: dict[str, frozenset[int]]) -> list[str]:
        own = frozenset().union(*(cpus.get(key, frozenset()) for key in pod.keys))
        faults = [] if len(own) == 1 else [f"{pod.name}: 1 exclusive CPU requested, runs on {sorted(own)}"]
        for name, theirs in cpus.items():
            if name not in pod.keys and own & theirs and _kind(name) not in SHARES_WITH[pod.kind]:
                faults.append(
                    f"CPUs {sorted(own & theirs)} are exclusive to {pod.name}, and {name} may use them"
                )
        return faults

    def _overlaps(self, cpus: dict[str, frozenset[int]]) -> list[str]:
        """Two containers with exclusive CPUs, also ones that are just starting or ending."""
        lanes = {name: set_ for name, set_ in cpus.items() if _kind(name) in EXCLUSIVE}
        return [
            f"CPUs {sorted(lanes[one] & lanes[other])} belong to {one} and to {other}"
            for one, other in combinations(sorted(lanes), 2)
            if lanes[one] & lanes[other]
        ]

    # Once every order is carried out.

    async def settled(self, seconds: float = 45.0) -> dict[str, list[str]]:
        """All views agree, and nothing is left of what has ended; waits some seconds until that is so."""
        self._note_instances()
        deadline = time.monotonic() + seconds
        while True:
            found = await self._views()
            if not any(found.values()) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.5)

    async def _views(self) -> dict[str, list[str]]:
        try:
            pods = {one["metadata"]["name"]: one for one in await self.up.api.items(PODS)}
        except NoAnswer as error:
            return {API_AGREES: [f"the API does not answer: {error}"]}
        return {
            **self.kernel(),
            API_AGREES: self._api(pods),
            LEDGER_AGREES: self._ledger(pods),
            NOTHING_LEFT: self.left(pods),
        }

    def _note_instances(self) -> None:
        for processes in self.workload.marks.processes().values():
            self.instances |= {kernel.instance_of(processes[0].pid)} - {""}

    def _api(self, pods: dict[str, Object]) -> list[str]:
        return [fault for pod in self.workload.live() for fault in _differences(pod, pods.get(pod.name))]

    def _ledger(self, pods: dict[str, Object]) -> list[str]:
        """CPUs that the ledger gives a container are the kernel's, and those that a pod is annotated with.

        Containers of a pool have none of their own there.
        """
        try:
            entries = json.loads((self.up.node / "ledger.json").read_bytes())["ledger"]["entries"]
        except (OSError, ValueError, KeyError) as error:
            return [f"ledger.json: {error}"]
        recorded = {(one["uid"], one["container"]): kernel.cpu_list(one["cpus"]) for one in entries}
        faults = []
        for pod in self.workload.live():
            for name in pod.containers:
                cpus = kernel.allowed(pod.main[f"{pod.name}/{name}"].pid)
                entry = recorded.get((pod.uid, name))
                if entry is None or ((entry or pod.kind in EXCLUSIVE) and entry != cpus):
                    text = "no entry" if entry is None else f"CPUs {sorted(entry)}"
                    faults.append(f"{pod.name}/{name}: ledger has {text}, the kernel CPUs {sorted(cpus)}")
            note = pods[pod.name]["metadata"].get("annotations", {}).get(RESOURCE_STATUS)
            if pod.kind in EXCLUSIVE and kernel.cpu_list(json.loads(note or "{}").get("cpuset", "")) != cpus:
                faults.append(f"{pod.name}: annotated with {note}, the kernel has CPUs {sorted(cpus)}")
        return faults

    def left(self, pods: dict[str, Object]) -> list[str]:
        """Processes, records, logs, cgroups and temporary files of pods that are gone."""
        uids = {one["metadata"]["uid"] for one in pods.values()}
        running = {pod.uid for pod in self.workload.live()}
        return [
            *self._left_processes(),
            *(f"record of a pod that is gone: {path}" for path in self._records() if _uid(path) not in uids),
            *(f"log of a pod that is gone: {path}" for path in self._logs() if _log_uid(path) not in uids),
            *(
                f"cgroup of nothing that runs: {path}"
                for path in self._groups()
                if not self._is_used(path, running, uids)
            ),
            *(
                f"temporary file left: {path}"
                for path in kernel.files(self.up.data)
                if path.suffix == ".tmp" and _age(path) > _OLD
            ),
        ]

    def _left_processes(self) -> list[str]:
        known = {key for pod in self.workload.pods.values() for key in pod.keys}
        return [
            f"process of a container that is gone: {name}"
            for name in self.workload.marks.processes().keys() - known
        ]

    def _records(self) -> list[Path]:
        return _children(self.up.containers)

    def _logs(self) -> list[Path]:
        return _children(self.up.node / "containers" / "logs")

    def _groups(self) -> list[Path]:
        return [path for path in kernel.groups(self.instances) if path.parent.name != "corelane"]

    def _is_used(self, group: Path, running: set[str], uids: set[str]) -> bool:
        """Whether a cgroup is a container's that runs; a pod's group stays as long as the pod."""
        is_pod = group.parent.name in self.instances
        return any(part in (uids if is_pod else running) for part in group.parts)

    def nothing(self, work: Path) -> list[str]:
        """After `corelane down --purge`: no process, cgroup, file or mount."""
        marked = self.workload.marks.processes()
        return [
            *(f"process left of {name}: {of[0]}" for name, of in marked.items()),
            *(f"process left that names {self.up.data}: {pid}" for pid in kernel.shims(self.up.data)),
            *(f"cgroup left: {path}" for path in kernel.groups(self.instances)),
            *(f"file left: {path}" for path in sorted([*kernel.directories(work), *kernel.files(work)])),
            *(f"mount left: {line}" for line in kernel.mounts(work)),
        ]


def _replaced(pod: Pod, processes: dict[str, list[Identity]]) -> list[str]:
    faults = []
    for key, main in pod.main.items():
        now = processes.get(key, [])
        if not now:
            faults.append(f"{key}: {main} has ended, and nothing runs for it")
        elif now[0] != main:
            faults.append(f"{key}: {main} was replaced by {now[0]}")
    return faults


def _differences(pod: Pod, seen: Object | None) -> list[str]:
    if seen is None:
        return [f"{pod.name}: not in the API"]
    status = seen["status"]
    containers = status.get("containerStatuses", ())
    checks: list[tuple[str, object, object]] = [
        ("uid", seen["metadata"]["uid"], pod.uid),
        ("phase", status.get("phase"), "Running"),
        ("Ready", condition(seen, "Ready"), True),
        ("restarts", sum(one["restartCount"] for one in containers), 0),
        ("container ids", {one["name"]: one.get("containerID") for one in containers}, pod.ids),
        ("deletion", seen["metadata"].get("deletionTimestamp"), None),
    ]
    if pod.kind in EXCLUSIVE:
        checks.append(("corelane.io/Pinned", condition(seen, "corelane.io/Pinned"), True))
    return [
        f"{pod.name}: {what} is {now}, expected {before}" for what, now, before in checks if now != before
    ]


def _kind(key: str) -> str:
    return key.partition("-")[0]


def _children(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.is_dir()]
    except OSError:
        return []


def _uid(record: Path) -> str:
    try:
        return str(json.loads((record / "spec.json").read_bytes())["spec"]["pod_uid"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unreadable"


def _log_uid(path: Path) -> str:
    return path.name.rpartition("_")[2]


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
