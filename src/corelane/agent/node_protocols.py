"""What the sources of an agent beside a kubelet need: of its runtime, and of the agent."""

from typing import Protocol

from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.kubelet_pods import KubeletPods
from corelane.agent.allocation.records import RunCPUs
from corelane.agent.clocks import Clocks
from corelane.agent.nri_handlers import Records
from corelane.agent.reporting import AgentReporter
from corelane.runtime.base import ResourceUpdate, Runtime
from corelane.runtime.cri.values import RuntimeVersion


class NodeRuntime(Runtime, Protocol):
    """A runtime beside a kubelet."""

    async def version(self, *, again: bool = False) -> RuntimeVersion:
        """Return name and version of the runtime, read once, or `again`."""

    @property
    def follows_events(self) -> bool:
        """Whether the runtime reports starts and ends now."""

    @property
    def unrecorded(self) -> list[str]:
        """Ids of containers whose cgroup differs from the runtime's record."""

    @property
    def records(self) -> Records:
        """The runtime's own records of its containers."""

    async def apply(self, container_id: str, change: ResourceUpdate) -> None:
        """Change a container, and return once the kernel has the change: the runtime's record follows."""


class SourcesOwner(Protocol):
    """What the sources need of the agent."""

    reporter: AgentReporter
    clocks: Clocks
    machine: KubeletPods

    def put(self, event: AgentEvent) -> None: ...

    def runs(self) -> list[RunCPUs]: ...

    def allocated_pods(self) -> dict[str, str]:
        """Return `namespace/name` by UID of the pods that the ledger has."""

    def may_write(self) -> bool: ...

    def publish_kubelet_cpusets(self) -> None: ...
