"""What an agent beside a kubelet is set to do, and what it reads and writes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corelane.agent.execution import NodeRuntime
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.kubelet.kubelet_sources import Kubelet, KubeletSide, PodResourcesSocket
from corelane.agent.kubelet.pod_list import AbsentPods, PodList
from corelane.kube.client import KubeClient
from corelane.machine.model import Machine
from corelane.machine.watch import MachineWatch
from corelane.node.config import NodeConfig
from corelane.runtime.nri.connection import SOCKET


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentSettings:
    """What an operator sets. `nri` is the runtime's NRI socket, None where it is not to be used."""

    node_name: str
    state_dir: Path
    config: NodeConfig
    reconcile_seconds: float = 10.0
    read_only: bool = False
    ignore: bool = False
    nri: Path | None = SOCKET
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSurroundings:
    """What the agent reads and writes: the kubelet None where there is none, as in a test.

    `resources_required`: that the podresources socket does not exist is a fault.
    """

    client: KubeClient
    runtime: NodeRuntime
    machine: Machine
    kubelet: Kubelet | None = None
    state_file: KubeletStateFile | None = None
    resources: PodResourcesSocket | None = None
    resources_required: bool = False
    kubelet_address: str = ""
    machine_watch: MachineWatch | None = None

    def kubelet_side(
        self, node_name: str, changed: Callable[[], None], pods: PodList, clock: Callable[[], float]
    ) -> KubeletSide | None:
        """Return the reader of all that the kubelet says; None without a kubelet. `clock` is monotonic."""
        if self.kubelet is None:
            return None
        return KubeletSide(
            self.kubelet,
            changed,
            pods,
            AbsentPods(self.client, node_name, clock),
            clock,
            state_file=self.state_file,
            resources=self.resources,
            resources_required=self.resources_required,
        )

    async def close(self) -> None:
        """Close the connections to runtime and kubelet."""
        for connection in (self.runtime, self.kubelet, self.resources):
            if connection is not None:
                await connection.close()
