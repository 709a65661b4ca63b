"""Containers of other instances on this machine, looked for again and again, and the CPUs they may use."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from corelane.cpuset import CPUSet
from corelane.embedded.containers import container_search, instances
from corelane.embedded.containers.container_search import KnownTraces, Traces
from corelane.embedded.containers.instances import InstanceContainer, Own
from corelane.kernel import cgroup, ownership, proc
from corelane.node.recovery.unplaced import Kind, OtherContainer


class OtherContainers:
    """Finds the containers of other instances than the one with this state directory and name."""

    def __init__(self, state: Path, instance: str, groups: cgroup.Groups | None) -> None:
        self._state, self._instance, self._groups = state, instance, groups
        self._known = KnownTraces()

    def find(self, own: Collection[str], own_groups: Collection[str | None]) -> tuple[OtherContainer, ...]:
        """Return the others; `own` are ids and cgroups of this instance's containers. Blocks."""
        mine = Own(self._state, self._instance, own, own_groups)
        traces = self._known.look(own)
        others = instances.running(self._groups, mine, traces)
        seen = [OtherContainer(one.owner, one.title, self._cpus(one, traces), _kind(one)) for one in others]
        listed = {one.main.pid for one in others}
        seen += (one for pid, one in self._beside(traces) if pid not in listed)
        seen += _unseen()
        return tuple(sorted((one for one in seen if one.cpus), key=lambda one: (one.owner, one.title)))

    def _beside(self, traces: Traces) -> Iterator[tuple[int, OtherContainer]]:
        """Yield the processes beside all containers that may not use all CPUs."""
        for process in traces.confined:
            user, cpus = proc.owner(process.pid), proc.allowed(process.pid)
            if cpus and user is not None and not container_search.group_of(process.pid, self._groups):
                owner = instances.user_title(user)
                yield process.pid, OtherContainer(owner, f"process {process.pid}", cpus, "process")

    def _cpus(self, one: InstanceContainer, traces: Traces) -> CPUSet:
        """Return the CPUs of a container: its cgroup's effective set, and those that its tasks may use."""
        if self._groups and one.group:
            try:
                return self._groups.read(one.group).effective
            except (cgroup.CgroupError, ValueError):
                pass
        tasks = proc.tasks_allowed(instances.processes(one, self._groups, traces.marked))
        return CPUSet(cpu for task in tasks for cpu in task.cpus)


def _kind(one: InstanceContainer) -> Kind:
    """Another user's word takes no CPUs from root; between ordinary users, each avoids the other's.

    Outside a user namespace its root is an ordinary user.
    """
    below_root = os.geteuid() == 0 != one.user and not ownership.is_outside(one.user)
    return "claim" if below_root or one.user == proc.MIXED else "container"


def _unseen() -> list[OtherContainer]:
    """Return what stands for processes that are hidden from us, on any CPU; nothing if we see all."""
    everywhere = CPUSet(os.sched_getaffinity(0))
    if proc.in_inner_namespace():
        where = "processes outside this PID namespace"
    elif proc.stat(1) is None:
        where = "processes of other users (/proc is mounted with hidepid)"
    else:
        return []
    return [OtherContainer(where, "what cannot be seen", everywhere, "unseen")]
