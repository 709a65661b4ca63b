"""What is left of nodes that are gone: pods that nobody runs any more. Pure: facts in, names out.

As upstream's pod garbage collector, with its quarantine: a node may come back within 40 s.
"""

from collections.abc import Collection, Iterable
from typing import Final

from corelane.kube.pod import Pod

QUARANTINE_SECONDS: Final = 40.0


class Missing:
    """Since when nodes are missing that pods are bound to."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def orphans(self, pods: Iterable[Pod], nodes: Collection[str], at: float) -> list[Pod]:
        """The pods whose node has been missing long enough."""
        bound = [pod for pod in pods if pod.spec.node_name and pod.spec.node_name not in nodes]
        missing = {pod.spec.node_name for pod in bound}
        self._since = {node: self._since.get(node, at) for node in missing}
        return [pod for pod in bound if at - self._since[pod.spec.node_name] >= QUARANTINE_SECONDS]
