"""A cluster that changes at random around the scheduler's core: all kinds of objects that rules of pods name.

Objects are those of the recorded cases (`support.kube_scheduler`). Bindings succeed at once; pods with claims
are deleted instead, for nothing here binds their volumes.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from corelane.kube.pod import Pod
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.events import BindFailed, BindSucceeded, CycleDue, PodChanged, SchedulerEvent
from corelane.scheduler.instructions import Bind
from support.kube_scheduler import objects, pods, replay, volumes

KINDS: Final = dict(replay._KINDS)
PATIENCE: Final = 30.0
"""Seconds that `settle` waits for back-offs; pods that nothing wakes are tried after 300 s."""


class ChangingCluster:
    """What is true, and a core that is told of each change at once."""

    most_nodes = 7

    def __init__(self, seed: int) -> None:
        self.random, self.now, self.core = Random(seed), 0.0, SchedulerCore()
        self.objects: dict[str, dict[tuple[str, str], Any]] = {key: {} for key in KINDS}
        self.pods: dict[str, Pod] = {}
        self.count = self.bound = 0
        for one in objects.namespaces(self.random):
            self.put("namespaces", one)
        for one in volumes._classes(self.random):
            self.put("classes", one)
        for number in range(self.random.randint(2, self.most_nodes - 1)):
            self.put_node(number)

    def tell(self, event: SchedulerEvent) -> None:
        """Tell the core of a change."""
        self.core.handle(event)

    # What happens.

    def put(self, key: str, obj: dict[str, Any]) -> None:
        name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        new = replay._read(objects.without_empty(obj), KINDS[key])
        old, self.objects[key][name] = self.objects[key].get(name), new
        self.tell(replay.changed(self.now, old, new))

    def delete(self, key: str, name: tuple[str, str]) -> None:
        old = self.objects[key].pop(name, None)
        if old is not None:
            self.tell(replay.changed(self.now, old, None))

    def put_node(self, number: int) -> None:
        node = objects.node(self.random, number)
        if self.random.random() < 0.4:
            pods.add_taints(self.random, [node], {"spec": {}})
        self.put("nodes", node)
        if self.random.random() < 0.5:
            self.put("csi_nodes", volumes.limits(self.random, node["metadata"]["name"]))

    def put_pod(self, pod: Pod) -> None:
        old = self.pods.get(pod.metadata.uid)
        version = str(int(old.metadata.resource_version) + 1 if old else 1)
        self.pods[pod.metadata.uid] = new = replace(
            pod, metadata=replace(pod.metadata, resource_version=version)
        )
        self.tell(PodChanged(self.now, old, new))

    def delete_pod(self, uid: str) -> None:
        self.tell(PodChanged(self.now, self.pods.pop(uid), None))

    def new_pod(self, node: str | None = None) -> Pod:
        self.count += 1
        random, made = self.random, objects.pod(self.random, f"p{self.count}", node)
        spec = made["spec"]
        for add, chance in ((pods.add_resources, 0.4), (pods.add_ports, 0.25), (pods.add_spread, 0.45)):
            if random.random() < chance:
                add(random, made)
        if random.random() < 0.45:
            pods.add_pod_affinity(random, made, most=1 if node else 2)
        if node is None and random.random() < 0.3:
            pods.add_node_affinity(random, made)
            spec.pop("nodeName", None)
        if node is None and random.random() < 0.3:
            pods.add_taints(random, [], made)
        if random.random() < 0.25:
            made["metadata"]["namespace"] = "default"
            claim = {"claimName": f"c{random.randrange(3)}"}
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
        return replay._pod(made, self.core.name)

    def step(self) -> None:
        """Change one thing."""
        random = self.random
        self.now += random.choice([0, 0, 0.1, 1, 3])
        changes = self.changes()
        random.choices(tuple(changes), tuple(changes.values()))[0]()

    def changes(self) -> dict[Callable[[], None], int]:
        """Return what may happen, and how often."""
        return {
            self._pod_comes: 40,
            self._pod_goes: 10,
            self._pod_changes: 6,
            self._node_changes: 30,
            self._other_changes: 14,
            self._storage_changes: 14,
        }

    def _names(self) -> list[str]:
        return [name for _, name in self.objects["nodes"]]

    def _pod_comes(self) -> None:
        names = self._names()
        there = bool(names) and self.random.random() < 0.25
        self.put_pod(self.new_pod(self.random.choice(names) if there else None))

    def _pod_goes(self) -> None:
        if self.pods:
            self.delete_pod(self.random.choice(list(self.pods)))

    def _pod_changes(self) -> None:
        """A placed pod gets another label, or terminates."""
        placed = [pod for pod in self.pods.values() if pod.spec.node_name]
        if not placed:
            return
        pod = self.random.choice(placed)
        labels = pod.metadata.labels | {"app": self.random.choice(objects.APPS)}
        terminating = self.random.random() < 0.4
        changed = {"deletion_timestamp": "2026-11-23T06:00:00Z"} if terminating else {"labels": labels}
        self.put_pod(replace(pod, metadata=replace(pod.metadata, **changed)))

    def _node_changes(self) -> None:
        names = self._names()
        if names and self.random.random() < 0.4:
            self.delete("nodes", ("", self.random.choice(names)))
        else:
            self.put_node(self.random.randrange(self.most_nodes))

    def _other_changes(self) -> None:
        random, kind = self.random, self.random.random()
        nodes = [{"metadata": {"name": name}} for name in self._names() or ["n0"]]
        if kind < 0.2:
            self.put("namespaces", random.choice(objects.namespaces(random)))
        elif kind < 0.35:
            self.put("services", pods._service(random, random.randrange(3)))
        elif kind < 0.75:
            number, claims, made = random.randrange(3), [], []
            volumes._claim(random, number, nodes, claims, made)
            self.delete("claims", ("default", f"c{number}"))
            for key, listed in (("claims", claims), ("volumes", made)):
                for one in listed:
                    self.put(key, one)
        else:
            name, storage_class = f"free{random.randrange(3)}", random.choice(["wait", "local"])
            self.put("volumes", volumes._volume(random, name, nodes, storage_class))

    def _storage_changes(self) -> None:
        random, node = self.random, self.random.choice(self._names() or ["n0"])
        key, made = random.choice(
            [
                ("csi_nodes", volumes.limits(random, node)),
                ("csi_drivers", volumes.driver(random)),
                ("capacities", volumes.capacity(random, random.randrange(4))),
                ("attachments", volumes.attachment(random, node)),
            ]
        )
        if random.random() < 0.25:
            self.delete(key, (made["metadata"].get("namespace", ""), made["metadata"]["name"]))
        else:
            self.put(key, made)

    # What the core does, beside one that starts now.

    def anew(self, pod: Pod) -> Attempt:
        """Return the attempt of a core that was told of the cluster as it is now."""
        core = SchedulerCore()
        for key in KINDS:
            for obj in self.objects[key].values():
                core.handle(replay.changed(0.0, None, obj))
        for one in self.pods.values():
            if one.spec.node_name:
                core.handle(PodChanged(0.0, None, one))
        return finalists.attempt(core.profile, core.cluster, PodInfo.of(pod))

    def settle(self) -> None:
        """Have every ready pod tried; each binding is what a new core decides, and so is each refusal."""
        until = self.now + PATIENCE
        while self.core.ready(self.now) or (self.core.next_time() or until) < until:
            if not self.core.ready(self.now):
                self.now = max(self.now, self.core.next_time() or until)
            for bind in self.core.handle(CycleDue(self.now)):
                if isinstance(bind, Bind):
                    self._carry_out(bind)
        for pod in self.pods.values():
            if not pod.spec.node_name:
                node = self.anew(pod).node
                assert node is None, f"{pod.title} waits, and fits on {node.name if node else ''}"

    def _carry_out(self, bind: Bind) -> None:
        uid = bind.pod.metadata.uid
        pod, node = self.pods[uid], self.anew(self.pods[uid]).node
        assert node is not None, f"{pod.title} bound to {bind.node}, and fits nowhere"
        assert node.name == bind.node, f"{pod.title} bound to {bind.node}, not to {node.name}"
        self.bound += 1
        if any(volume.persistent_volume_claim for volume in pod.spec.volumes):
            self.core.handle(BindFailed(self.now, uid, "rejected", "deleted"))
            self.delete_pod(uid)
            return
        self.core.handle(BindSucceeded(self.now, uid))
        self.put_pod(replace(pod, spec=replace(pod.spec, node_name=bind.node)))
