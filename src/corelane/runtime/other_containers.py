"""Containers of other instances on this machine, looked for again and again, and the CPUs they may use."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from corelane.cpuset import CPUSet
from corelane.kernel import cgroup, proc
from corelane.runtime import instances
from corelane.runtime.container_search import KnownTraces, Traces
from corelane.runtime.instances import InstanceContainer, Own


@dataclass(frozen=True, slots=True)
class OtherContainer:
    """A running container of another instance: `owner` names that, `title` the container."""

    owner: str
    title: str
    cpus: CPUSet


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
        seen = (OtherContainer(one.owner, one.title, self._cpus(one, traces)) for one in others)
        return tuple(sorted((one for one in seen if one.cpus), key=lambda one: (one.owner, one.title)))

    def _cpus(self, one: InstanceContainer, traces: Traces) -> CPUSet:
        """Return the CPUs of a container: its cgroup's effective set, and those that its tasks may use."""
        if self._groups and one.group:
            try:
                return self._groups.read(one.group).effective
            except (cgroup.CgroupError, ValueError):
                pass
        tasks = proc.tasks_allowed(instances.processes(one, self._groups, traces.marked))
        return CPUSet(cpu for task in tasks for cpu in task.cpus)
