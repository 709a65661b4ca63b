"""Nominated nodes: where pods were evicted for a pod that is still pending (`status.nominatedNodeName`)."""

from collections.abc import Iterable, Iterator

from corelane.scheduler.cache.pods import PodInfo


class Nominations:
    """Pending pods by their nominated node. Upstream: `pkg/scheduler/backend/queue/nominator.go`."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._pods: dict[str, dict[str, PodInfo]] = {}
        self._victims: dict[str, frozenset[str]] = {}
        self.evicting: set[str] = set()
        """UIDs of pods whose eviction is ordered, and neither seen nor failed."""
        self.label_keys: frozenset[str] = frozenset()
        """Label keys that affinity terms of nominated pods look at."""

    def __len__(self) -> int:
        return len(self._nodes)

    def of(self, uid: str) -> str:
        """Return the name of the pod's nominated node, "" without one."""
        return self._nodes.get(uid, "")

    def on(self, node: str) -> Iterator[PodInfo]:
        """Yield the pods for which the node is nominated."""
        return iter(self._pods.get(node, {}).values())

    def matter_to(self, info: PodInfo) -> bool:
        """Return whether another pod of equal or higher priority has a nominated node."""
        priority = info.pod.spec.priority
        pods = (pod for pods in self._pods.values() for pod in pods.values())
        return any(pod.pod.spec.priority >= priority and pod.uid != info.uid for pod in pods)

    def get(self, uid: str) -> PodInfo | None:
        node = self._nodes.get(uid)
        return self._pods[node][uid] if node is not None else None

    def victims(self, uid: str) -> frozenset[str]:
        """Return the UIDs of the pods that were evicted for a pod, as far as this process did it."""
        return self._victims.get(uid, frozenset())

    def waiting_for(self, victim: str) -> Iterator[str]:
        """Yield the UIDs of the pods for which that pod is evicted."""
        return (uid for uid, victims in self._victims.items() if victim in victims)

    def put(self, info: PodInfo, node: str, victims: Iterable[str] = ()) -> None:
        """Nominate a node, and no other any more."""
        self.drop(info.uid)
        self._victims[info.uid] = frozenset(victims)
        self._nodes[info.uid] = node
        self._pods.setdefault(node, {})[info.uid] = info
        self.label_keys |= info.facts.affinities.keys

    def refresh(self, info: PodInfo) -> None:
        """Replace a nominated pod, if it is one."""
        if node := self._nodes.get(info.uid):
            self._pods[node][info.uid] = info

    def drop(self, uid: str) -> str:
        """Forget a pod's nomination, and return the node's name, "" without one."""
        node = self._nodes.pop(uid, "")
        if node:
            self._victims.pop(uid, None)
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]
        return node
