"""How a container is held to its CPUs: by cgroups of its own, else by CPU affinity alone.

All of this blocks for as long as the kernel takes; the runtime calls it in threads.
"""

import errno
import time
from collections.abc import Collection
from pathlib import Path
from typing import Literal, Protocol

from corelane.cpuset import CPUSet
from corelane.embedded.containers.records import ContainerRecord, ShimOutcome
from corelane.embedded.containers.shim.processes import oom_kills
from corelane.kernel import affinity, cgroup, cgroup_tree, proc
from corelane.runtime.base import ContainerSpec, ObservedResources

Mode = Literal["auto", "off", "required"]
_END_SECONDS = 0.5  # the next sweep tries again
_POLL_SECONDS = 0.01


class Enforcement(Protocol):
    """What the runtime needs of either way."""

    name: str
    limits_memory: bool

    def place(self, spec: ContainerSpec) -> tuple[str | None, tuple[str, ...]]:
        """The cgroup that is to hold a container, and its directories. Raises ValueError for a bad name."""

    def prepare(self, stored: ContainerRecord) -> None:
        """Get that place ready for a start. Raises CgroupError."""

    def apply(self, old: ContainerRecord, new: ContainerRecord, outcome: ShimOutcome) -> None:
        """Make the kernel follow a change of the spec. Raises CgroupError, AffinityError."""

    def repair(self, stored: ContainerRecord, outcome: ShimOutcome) -> affinity.Repinned:
        """Bring back the tasks that left their CPUs. Raises AffinityError."""

    def processes(self, stored: ContainerRecord, outcome: ShimOutcome) -> list[int]:
        """Every process of a running container."""

    def observe(self, stored: ContainerRecord, outcome: ShimOutcome) -> ObservedResources | None:
        """Return what the kernel grants the container; None once its cgroup is gone. Raises CgroupError."""

    def end(self, stored: ContainerRecord, outcome: ShimOutcome | None) -> list[int]:
        """Kill the processes that an ended container left; return those that are still there.

        Raises CgroupError.
        """

    def oom_kills(self, stored: ContainerRecord) -> int:
        """Return how many processes of a container the OOM killer ended, as long as its cgroup is there."""

    def release(self, stored: ContainerRecord) -> None:
        """Remove what was prepared, once no process is left. Raises CgroupError."""

    def weigh(self, pod_uid: str, milli: int) -> None:
        """Set in the kernel the CPU requests of a pod's running containers, summed. Raises CgroupError."""

    def tidy(self, known: Collection[str | None]) -> None:
        """Remove empty groups of unknown containers, as a crash may leave them. Raises CgroupError."""

    def forget_pod(self, pod_uid: str) -> None:
        """Remove what was prepared for a pod, with all that is in it. Raises CgroupError."""

    def leave(self) -> None:
        """Remove what is prepared and unused; no process is killed. Raises CgroupError."""

    def destroy(self) -> None:
        """Remove all that is prepared, with all that is in it. Raises CgroupError."""


def choose(mode: Mode, instance: str, root: Path = Path("/")) -> "tuple[Enforcement, str]":
    """The best to be had here, and what it lacks. Raises CgroupsUnavailable if cgroups are required."""
    reason = "cgroups are switched off"
    if mode != "off":
        try:
            by_cgroup = ByCgroup(cgroup.find(root), instance)
        except (cgroup.CgroupsUnavailable, cgroup.CgroupError) as error:
            if mode == "required":
                raise
            reason = str(error)
        else:
            lacks = by_cgroup.groups.lacks
            return by_cgroup, f"{by_cgroup.name}, memory limits are not enforced: {lacks}" if lacks else ""
    lack = (
        "no quota, shares, memory limits or memory nodes, "
        "and tasks that leave their CPUs are brought back only later"
    )
    return ByAffinity(), f"CPU affinity alone, {lack}: {reason}"


def mark(container_id: str) -> str:
    """The environment variable by which a container's processes are known when all else fails."""
    return f"CORELANE_CONTAINER_ID={container_id}"


def _descent(outcome: ShimOutcome) -> list[int]:
    """Return the processes below the shim, which inherits all orphans; without it, below the main process."""
    if proc.is_alive(outcome.shim):
        return proc.descendants(outcome.shim.pid)
    if outcome.boot_id == proc.boot_id() and proc.is_alive(outcome.main):
        return [outcome.main.pid, *proc.descendants(outcome.main.pid)]
    return []


def _tree(stored: ContainerRecord, outcome: ShimOutcome) -> list[int]:
    """Return the processes of a container by descent; without its shim, also those that are marked."""
    pids = _descent(outcome)
    return pids if proc.is_alive(outcome.shim) else sorted({*pids, *proc.bearing(mark(stored.id))})


def _end_marked(stored: ContainerRecord, outcome: ShimOutcome | None) -> list[int]:
    """Kill what bears a container's mark, wherever it is; return what is left.

    The shim leaves no process behind, unless it was killed or recorded some.
    """
    if outcome is None or not (outcome.left or outcome.state == "running"):
        return []
    deadline = time.monotonic() + _END_SECONDS
    while left := proc.kill_all(lambda: proc.bearing(mark(stored.id))):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    return left


class ByCgroup:
    """A cgroup a container, `corelane/<instance>/<pod uid>/<container>`."""

    def __init__(self, groups: cgroup.Groups, instance: str) -> None:
        self.groups = groups
        self.instance = instance
        self.root = cgroup.join(instance)
        self.name = f"cgroup v{groups.version}"
        self.limits_memory = cgroup_tree.is_limited(groups)
        # Like the kubelet's our own root weighs as much as all its CPUs beside other work.
        self.groups.create(self.root)
        milli = 1000 * len(self.groups.read(self.root).effective)
        self.groups.set_request(cgroup.OWN, milli, "pod")
        self.groups.set_request(self.root, milli, "pod")

    def _pod(self, pod_uid: str) -> str:
        return cgroup.join(self.instance, pod_uid)

    def place(self, spec: ContainerSpec) -> tuple[str | None, tuple[str, ...]]:
        group = cgroup.join(self.instance, spec.pod_uid, spec.name)
        return group, tuple(map(str, self.groups.directories(group)))

    def prepare(self, stored: ContainerRecord) -> None:
        group = stored.group or ""
        self._clear(group)
        self.groups.create(group)
        spec = stored.spec
        if spec.mems:
            self.groups.set_mems(group, spec.mems)
        self.groups.set_cpus(group, spec.cpus)
        self.groups.set_request(group, spec.cpu_shares_milli, "container")
        self.groups.set_quota(group, spec.quota_us, spec.period_us, spec.burst_us)
        cgroup_tree.set_limit(self.groups, self._pod(spec.pod_uid), spec.pod_memory_limit or None)
        cgroup_tree.set_limit(self.groups, group, spec.memory_limit or None)
        cgroup_tree.end_together(self.groups, group)
        effective = self.groups.read(group).effective
        if not effective <= stored.spec.cpus:  # version 2 takes those of the group above for ones it lacks
            text = f"the kernel allows CPUs {effective} in place of {stored.spec.cpus}"
            raise OSError(errno.ENODEV, text)

    def apply(self, old: ContainerRecord, new: ContainerRecord, outcome: ShimOutcome) -> None:
        """Only what differs is written: every write of a quota grants a fresh one.

        CPUs that come back on-line are not restored by version 1: then the effective set differs.
        """
        group, was, now = new.group or "", old.spec, new.spec
        settings = self.groups.read(group)
        if now.mems and not now.mems == was.mems == settings.mems:
            self.groups.set_mems(group, now.mems)
        if not now.cpus == settings.cpus == settings.effective:
            self.groups.set_cpus(group, now.cpus)
        self.groups.gather(group)
        self.repair(new, outcome)
        if now.cpu_shares_milli != was.cpu_shares_milli:
            self.groups.set_request(group, now.cpu_shares_milli, "container")
        bandwidth = now.quota_us, now.period_us, now.burst_us
        if bandwidth != (settings.quota_us, settings.period_us, settings.burst_us):
            self.groups.set_quota(group, *bandwidth)

    def repair(self, stored: ContainerRecord, outcome: ShimOutcome) -> affinity.Repinned:
        """Bring back the processes that left the cgroup, as one of root can. Raises CgroupError."""
        strays = self._strays(stored, outcome)
        for pid in strays:
            try:
                self.groups.add(stored.group or "", pid)
            except cgroup.CgroupError as error:
                if error.errno != errno.ESRCH:
                    raise
        return affinity.Repinned(len(strays), ())

    def _strays(self, stored: ContainerRecord, outcome: ShimOutcome) -> list[int]:
        """Return the container's processes that are not in its cgroup, by their descent."""
        descent = _descent(outcome)  # before the group: what is forked meanwhile is in neither list
        inside = self.groups.confined(stored.group or "")
        return [pid for pid in descent if pid not in inside]

    def processes(self, stored: ContainerRecord, outcome: ShimOutcome) -> list[int]:
        return sorted({*self.groups.pids(stored.group or ""), *_tree(stored, outcome)})

    def observe(self, stored: ContainerRecord, outcome: ShimOutcome) -> ObservedResources | None:
        group = stored.group or ""
        try:
            settings = self.groups.read(group)
        except cgroup.CgroupError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return None
            raise
        strays = proc.tasks_allowed(self._strays(stored, outcome))
        return ObservedResources(
            cpus=settings.effective | CPUSet(cpu for task in strays for cpu in task.cpus),
            mems=settings.mems,
            quota_us=settings.quota_us,
            period_us=settings.period_us,
            burst_us=settings.burst_us,
            cgroup=group,
            populated=bool(strays) or self.groups.populated(group),
            cpus_requested=settings.cpus,
        )

    def end(self, stored: ContainerRecord, outcome: ShimOutcome | None) -> list[int]:
        left = self.groups.empty(stored.group or "", _END_SECONDS)
        return sorted({*left, *_end_marked(stored, outcome)})

    def oom_kills(self, stored: ContainerRecord) -> int:
        return oom_kills(map(str, self.groups.directories(stored.group or "")))

    def release(self, stored: ContainerRecord) -> None:
        group = stored.group or ""
        self.groups.delete(group)
        if not group.startswith(f"{self.root}/"):  # adopted: groups of an instance whose name was lost
            for above in (group.rpartition("/")[0], "/".join(group.split("/")[:2])):
                self.groups.prune(above)

    def _clear(self, group: str) -> None:
        if self.groups.exists(group):
            self.groups.empty(group)
            self.groups.delete(group)

    def weigh(self, pod_uid: str, milli: int) -> None:
        if self.groups.exists(self._pod(pod_uid)):
            self.groups.set_request(self._pod(pod_uid), milli, "pod")

    def tidy(self, known: Collection[str | None]) -> None:
        for pod in self.groups.children(self.root):
            names = {f"{self.root}/{pod}/{name}" for name in self.groups.children(f"{self.root}/{pod}")}
            for group in names.difference(known):
                self._prune(group)
            if names.isdisjoint(known):
                self._prune(f"{self.root}/{pod}")

    def _prune(self, group: str) -> None:
        """Remove a group in which no process is left; others are left as they are."""
        if self.groups.exists(group) and not self.groups.populated(group):
            self.groups.delete(group)

    def forget_pod(self, pod_uid: str) -> None:
        self._clear(self._pod(pod_uid))

    def leave(self) -> None:
        """Remove this instance's groups in which nothing runs; no process is killed, known or not."""
        for pod in self.groups.children(self.root):
            for name in self.groups.children(f"{self.root}/{pod}"):
                self.groups.prune(f"{self.root}/{pod}/{name}")
            self.groups.prune(f"{self.root}/{pod}")
        self.groups.prune(self.root)
        self.groups.prune(cgroup.OWN)

    def destroy(self) -> None:
        """Remove all groups of this instance, and the topmost one unless other instances use it."""
        self._clear(self.root)
        self.groups.prune(cgroup.OWN)


class ByAffinity:
    """No cgroup, only the affinity of every task."""

    name = "affinity"
    limits_memory = False

    def place(self, spec: ContainerSpec) -> tuple[str | None, tuple[str, ...]]:
        return None, ()

    def prepare(self, stored: ContainerRecord) -> None:
        """Nothing: the shim takes the affinity itself."""

    def apply(self, old: ContainerRecord, new: ContainerRecord, outcome: ShimOutcome) -> None:
        self._repin(new, outcome, new.previous)

    def repair(self, stored: ContainerRecord, outcome: ShimOutcome) -> affinity.Repinned:
        return self._repin(stored, outcome, stored.previous)

    def _repin(
        self, stored: ContainerRecord, outcome: ShimOutcome, previous: CPUSet | None
    ) -> affinity.Repinned:
        return affinity.repin(lambda: self.processes(stored, outcome), stored.spec.cpus, previous)

    def processes(self, stored: ContainerRecord, outcome: ShimOutcome) -> list[int]:
        return _tree(stored, outcome)

    def observe(self, stored: ContainerRecord, outcome: ShimOutcome) -> ObservedResources | None:
        """The union over all tasks: the kernel keeps no other record of affinities."""
        tasks = proc.tasks_allowed(self.processes(stored, outcome))
        cpus = CPUSet(cpu for task in tasks for cpu in task.cpus)
        return ObservedResources(cpus=cpus, populated=bool(tasks), cpus_requested=stored.spec.cpus)

    def end(self, stored: ContainerRecord, outcome: ShimOutcome | None) -> list[int]:
        return _end_marked(stored, outcome)

    def oom_kills(self, stored: ContainerRecord) -> int:
        return 0

    def release(self, stored: ContainerRecord) -> None:
        """Nothing was prepared."""

    def weigh(self, pod_uid: str, milli: int) -> None:
        """There are no shares to set."""

    def tidy(self, known: Collection[str | None]) -> None:
        """There are no cgroups."""

    def forget_pod(self, pod_uid: str) -> None:
        """There are no cgroups."""

    def leave(self) -> None:
        """There are no cgroups."""

    def destroy(self) -> None:
        """There are no cgroups."""


class Enforcements:
    """`default` is for new containers; `affinity` holds those that were started without cgroups."""

    def __init__(self, default: Enforcement) -> None:
        self.default = default
        self.affinity = ByAffinity()

    def of(self, stored: ContainerRecord) -> Enforcement:
        return self.affinity if stored.group is None else self.default
