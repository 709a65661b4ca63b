"""A cluster in which after every single change each parked pod is asked for: one that fits must be awake.

The core hears of every change as a watch would tell it, so that what a plugin listens to is held too, not its
hint alone. `WakingCluster.changes` is the table of what may happen: another kind of object is one more row.
"""

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import Lease, LeaseSpec, NodeResourceTopology, Taint
from corelane.kube.pod import Pod
from corelane.kube.translate.crane import CraneTopology
from corelane.machine.spec import parse_spec
from corelane.node import TopologyOptions
from corelane.node.config import NodeConfig
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import (
    AgentLeasesWatched,
    BindFailed,
    BindSucceeded,
    CycleDue,
    NodeChanged,
    ObjectChanged,
    SchedulerEvent,
    TopologyChanged,
    Unwatched,
)
from corelane.scheduler.framework.plugin import Nomination
from corelane.scheduler.framework.profile import DEFAULT_NAME, Profile
from corelane.scheduler.instructions import Bind, Evict, Instruction
from corelane.scheduler.queue.waiting import QueuePlace
from support.changing_cluster import ChangingCluster
from support.kube_scheduler import objects, pods, replay, volumes

MACHINES: Final = ("core:4 smt:2", "socket:2 core:4", "socket:2 core:2 smt:2")
LISTED: Final = ("namespaces", "persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes")
TAINTS: Final = (Taint("team", "a", "NoSchedule"),)
SINGLE: Final = '{"numaTopologyPolicy":"SingleNUMANode"}'


def grouped(random: Random, made: dict[str, Any]) -> None:
    """A pod of a group that stays together, or apart."""
    kind = random.choice(["podAffinity", "podAffinity", "podAntiAffinity"])
    app = random.choice(objects.APPS[:2])
    term = {
        "topologyKey": random.choice([objects.HOSTNAME, objects.ZONE]),
        "labelSelector": {"matchLabels": {"app": random.choice([app, app, "job"])}},
    }
    made["metadata"]["labels"] = {"app": app}
    made["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def large(random: Random, made: dict[str, Any]) -> None:
    amounts = {"cpu": random.choice(["1", "3", "5", "7"]), "memory": random.choice(["64Mi", "3Gi", "9Gi"])}
    made["spec"]["containers"] = [objects.container("c", amounts)]


def exclusive(random: Random, made: dict[str, Any]) -> None:
    """A pod that requests exclusive CPUs, one NUMA node, or CPUs apart from those of other pods."""
    amounts = {"cpu": random.choice(["1", "2", "3", "4", "6", "500m"]), "memory": "64Mi"}
    made["spec"]["containers"] = [
        objects.container("c") | {"resources": {"requests": amounts, "limits": amounts}}
    ]
    made["spec"].pop("initContainers", None)
    annotations = made["metadata"].setdefault("annotations", {})
    if random.random() < 0.3:
        annotations[keys.NUMA_TOPOLOGY_SPEC] = SINGLE
    if random.random() < 0.5:
        made["metadata"]["labels"][keys.QOS_CLASS] = random.choice(["LSR", "LSE", "LS"])
    if random.random() < 0.3:
        annotations[keys.CPU_AFFINITY] = cpu_affinity(random)


def _claim(random: Random, made: dict[str, Any]) -> None:
    made["metadata"]["namespace"] = "default"
    claims = random.sample(range(3), random.choice([1, 1, 2]))
    made["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}} for number in claims
    ]


def _disk(random: Random, made: dict[str, Any]) -> None:
    made["spec"]["volumes"] = [volumes._other_volume(random)]


FEATURES: Final[dict[str, Callable[[Random, dict[str, Any]], None]]] = {
    "affinity": lambda random, made: pods.add_pod_affinity(random, made, most=1),
    "claims": _claim,
    "cpus": exclusive,
    "disks": _disk,
    "groups": grouped,
    "large": large,
    "node-affinity": pods.add_node_affinity,
    "ports": pods.add_ports,
    "resources": pods.add_resources,
    "spread": pods.add_spread,
    "taints": lambda random, made: pods.add_taints(random, [], made),
}
"""What a pod of a theme says: another plugin's rules are one more row."""


class WakingCluster(ChangingCluster):
    """See the module. `seen` counts what was checked."""

    most_nodes = 4

    def __init__(
        self, seed: int, profiles: tuple[Profile, ...] = (), *, asked: float = 1.0, attempts: int = 200
    ) -> None:
        """`asked`: how often waiting changes are asked about at once. `attempts`: between two changes."""
        self.asked, self.attempts = asked, attempts
        self.seen: Counter[str] = Counter()
        self.topologies: dict[str, NodeResourceTopology] = {}
        self.crane: dict[str, CraneTopology] = {}
        self.unwatched: set[str] = set()
        self.leases: dict[str, Lease] = {}
        self.schedulers = [profile.name for profile in profiles] or [DEFAULT_NAME]
        self.themes = Random(seed).sample(sorted(FEATURES), Random(seed).choice([1, 1, 2, 3]))
        self._profiles = profiles
        self._checked = False
        super().__init__(seed)
        if profiles:
            self.core = SchedulerCore(profiles=profiles)
            for listed in self.objects.values():
                for obj in listed.values():
                    self.core.handle(replay.changed(0.0, None, obj))
        self.core.handle(AgentLeasesWatched(0.0, works=True))
        self._checked = True

    # What happens.

    def changes(self) -> dict[Any, int]:
        return super().changes() | {
            self._topology_changes: 20,
            self._crane_changes: 5,
            self._lease_changes: 6,
            self._nominated: 4,
            self._watches_change: 4,
            self._node_part_changes: 30,
            self._terminating_goes: 12,
            self._pod_goes: 24,
            self._starts: 5,
            self._object_goes: 5,
        }

    def new_pod(self, node: str | None = None) -> Pod:
        """A pod with rules of the cluster's themes only: few are rejected for more than one reason."""
        self.count += 1
        random, made = self.random, objects.pod(self.random, f"p{self.count}", node, self.namespace)
        for name in self.themes:
            if random.random() < 0.75:
                FEATURES[name](random, made)
        if node is None:
            made["spec"].pop("nodeName", None)
        pod = replay._pod(made, random.choice(self.schedulers))
        spec = replace(pod.spec, priority=random.choice([0, 0, 10]))
        if random.random() < 0.6:
            spec = replace(spec, preemption_policy="Never")
        return replace(pod, spec=spec)

    @property
    def namespace(self) -> str | None:
        return "default" if self.random.random() < 0.8 else None

    def _topology_changes(self) -> None:
        """A node's object is published, changes to another publisher's, or goes."""
        random = self.random
        name = f"n{random.randrange(self.most_nodes)}"
        old = self.topologies.pop(name, None)
        new = None if random.random() < 0.2 else self._published(name, old)
        if new is not None:
            self.topologies[name] = new
        if old is not None or new is not None:
            self.tell(TopologyChanged(self.now, old, new))

    def _published(self, name: str, old: NodeResourceTopology | None) -> NodeResourceTopology:
        random = self.random
        kind = random.choice(
            ["ledger", "ledger", "ledger", "koordlet", "kubelet", "zones", "zones", "damaged"]
        )
        if old is not None and random.random() < 0.6:
            kind = old.metadata.labels.get("kind", kind)
        if kind == "zones":
            made = zones(random, name)
        else:
            made = self._with_ledger(kind, name)
        labels = {**made.metadata.labels, "kind": kind}
        return replace(made, metadata=replace(made.metadata, labels=labels))

    def _with_ledger(self, kind: str, name: str) -> NodeResourceTopology:
        random = self.random
        machine = parse_spec(MACHINES[hash_of(name) % len(MACHINES)], name=name)
        config = random.choice(
            [
                NodeConfig(),
                NodeConfig("pools"),
                NodeConfig(numa=TopologyOptions(random.choice(["restricted", "single-numa-node"]))),
            ]
        )
        state = nodes.new(machine, NodeConfig("pools") if kind == "koordlet" else config)
        here = [pod for pod in self.pods.values() if pod.spec.node_name == name and random.random() < 0.8]
        for pod in here:
            try:
                state, _ = nodes.admit(state, translate.request(pod))
            except translate.TranslationError:
                continue
        obj = translate.topology(machine, name, state, leased=random.random() < 0.5)
        if kind == "ledger":
            return _read(obj)
        meta = obj["metadata"]
        if kind == "damaged":
            meta["annotations"].pop(keys.CPU_ALLOCATIONS, None)
            return _read(obj)
        theirs = {keys.CPU_TOPOLOGY: meta["annotations"][keys.CPU_TOPOLOGY]}
        if kind == "kubelet":
            theirs[keys.CPU_MANAGER_POLICY] = '{"policy":"static"}'
        labels = {keys.MANAGED_BY: "Koordinator"}
        return _read(
            {"metadata": {"name": name, "labels": labels, "annotations": theirs}, "zones": obj["zones"]}
        )

    def _crane_changes(self) -> None:
        random = self.random
        name = f"n{random.randrange(self.most_nodes)}"
        old = self.crane.pop(name, None)
        new = None if random.random() < 0.4 else cranes(random, name)
        if new is not None:
            self.crane[name] = new
        if old is not None or new is not None:
            self.tell(ObjectChanged(self.now, old, new))

    def _lease_changes(self) -> None:
        """A node's agent renews its Lease, gives it up, or the Lease is deleted."""
        name = f"n{self.random.randrange(self.most_nodes)}"
        old = self.leases.pop(name, None)
        how, new = self.random.random(), None
        if old is None or how < 0.8:
            spec = LeaseSpec(
                "agent" if how < 0.5 else "", 60, renew_time=f"2026-11-28T10:00:{self.now:09.6f}Z"
            )
            new = self.leases[name] = Lease(
                metadata=ObjectMeta(name=name, namespace=keys.AGENT_NAMESPACE), spec=spec
            )
        self.tell(ObjectChanged(self.now, old, new))

    def _nominated(self) -> None:
        """A pending pod gets a nominated node, or loses it, or gets another label."""
        random = self.random
        pending = [pod for pod in self.pods.values() if not pod.spec.node_name]
        if not pending:
            return
        pod = random.choice(pending)
        if random.random() < 0.4:
            labels = pod.metadata.labels | {"app": random.choice(objects.APPS)}
            self.put_pod(replace(pod, metadata=replace(pod.metadata, labels=labels)))
            return
        node = random.choice(["", *self._names()])
        self.put_pod(replace(pod, status=replace(pod.status, nominated_node_name=node)))

    def _node_part_changes(self) -> None:
        """One thing about a node: cordon, readiness, a label, a taint, or what is allocatable."""
        random = self.random
        if not (names := self._names()):
            return
        node = self.objects["nodes"]["", random.choice(names)]
        spec, status, meta = node.spec, node.status, node.metadata
        match random.randrange(5):
            case 0:
                spec = replace(spec, unschedulable=not spec.unschedulable)
            case 1:
                ready = random.choice(["True", "True", "False"])
                status = replace(status, conditions=(replace(status.conditions[0], status=ready),))
            case 2:
                made = objects.node(random, 0)["metadata"]["labels"]
                key = random.choice(sorted(meta.labels.keys() | made.keys()))
                labels = {name: value for name, value in meta.labels.items() if name != key}
                meta = replace(meta, labels=labels | ({key: made[key]} if key in made else {}))
            case 3:
                spec = replace(spec, taints=random.choice([(), TAINTS]))
            case 4:
                amounts = status.allocatable | {
                    "cpu": random.choice(["2", "4", "8"]),
                    "pods": random.choice(["2", "9"]),
                }
                status = replace(status, allocatable=amounts)
        new = replace(node, metadata=meta, spec=spec, status=status)
        self.objects["nodes"]["", meta.name] = new
        self.tell(NodeChanged(self.now, node, new))

    def _watches_change(self) -> None:
        """A kind can be watched no longer, or again."""
        plural = self.random.choice(LISTED)
        if plural in self.unwatched:
            self.unwatched.discard(plural)
            self.tell(Unwatched(self.now, plural, ""))
        else:
            self.unwatched.add(plural)
            self.tell(Unwatched(self.now, plural, "denied"))

    def _terminating_goes(self) -> None:
        gone = [uid for uid, pod in self.pods.items() if pod.metadata.deletion_timestamp]
        if gone:
            self.delete_pod(self.random.choice(gone))

    def _starts(self) -> None:
        placed = [pod for pod in self.pods.values() if pod.spec.node_name]
        if placed:
            pod = self.random.choice(placed)
            self.put_pod(replace(pod, status=replace(pod.status, phase="Running")))

    def _object_goes(self) -> None:
        """An object that no other step deletes."""
        key = self.random.choice(["claims", "volumes", "classes", "services", "namespaces"])
        if self.objects[key]:
            self.delete(key, self.random.choice(list(self.objects[key])))

    # The core.

    def tell(self, event: SchedulerEvent) -> None:
        self._carry(self.core.handle(event))
        self.check(event)

    def run(self, attempts: int = 0) -> None:
        """Have every ready pod tried, and the next ones whose back-off is over."""
        until = self.now + 12
        for _ in range(attempts or self.attempts):
            if not self.core.ready(self.now):
                at = self.core.next_time()
                if at is None or at > until:
                    return
                self.now = max(self.now, at)
            due = CycleDue(self.now)
            instructions = self.core.handle(due)
            self.check(due)
            self._carry(instructions)

    def _carry(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, Bind):
                self._bind(one)
            elif isinstance(one, Evict) and (victim := self.pods.get(one.victim.metadata.uid)):
                gone = replace(victim.metadata, deletion_timestamp="2026-11-23T06:00:00Z")
                self.put_pod(replace(victim, metadata=gone))

    def _bind(self, bind: Bind) -> None:
        uid = bind.pod.metadata.uid
        pod = self.pods.get(uid)
        if pod is None:
            return
        self.bound += 1
        how = self.random.random()
        if how < 0.2:
            self.tell(BindFailed(self.now, uid, "rejected", "no"))
            return
        self.tell(BindSucceeded(self.now, uid))
        meta = replace(pod.metadata, annotations={**pod.metadata.annotations, **bind.annotations})
        status = replace(pod.status, nominated_node_name="")
        self.put_pod(replace(pod, metadata=meta, status=status, spec=replace(pod.spec, node_name=bind.node)))

    def check(self, event: SchedulerEvent) -> None:
        """Every parked pod that fits somewhere, or that may preempt others, is on its way to be tried."""
        if not self._checked:
            return
        queue, cluster = self.core.queue, self.core.cluster
        if self.random.random() >= self.asked:
            return
        queue.ask(self.now, 1 << 20)
        self.seen["changes"] += 1
        for waiting in list(queue):
            group = queue._group_of(waiting)
            if waiting.place is not QueuePlace.PARKED or group is None or group.trials:
                continue
            self.seen["asked"] += 1
            profile = self.core.state.profile_of(waiting.info.pod)
            attempt = finalists.attempt(profile, cluster, waiting.info)
            where = attempt.node.name if attempt.node else ""
            if not where and not cluster.nominations.of(waiting.uid):
                where = self._preempts(profile, attempt)
            names = ", ".join(sorted(group.verdict.plugins))
            assert not where, f"{waiting.info.pod.title} parked by {names} fits on {where} after {event}"

    def _preempts(self, profile: Profile, attempt: finalists.Attempt) -> str:
        if attempt.unfinished:
            return ""
        result = profile.post_filters[0].post_filter(attempt.cycle, attempt.rejections)
        return f"{result.node} without {result.victims}" if isinstance(result, Nomination) else ""


def hash_of(name: str) -> int:
    return sum(map(ord, name))


def _read(obj: dict[str, Any]) -> NodeResourceTopology:
    return msgspec.json.decode(msgspec.json.encode(obj), type=NodeResourceTopology)


def zones(random: Random, name: str) -> NodeResourceTopology:
    """What an exporter publishes that knows amounts only."""
    amounts = [{"cpu": str(random.randint(0, 4)), "memory": "8Gi"} for _ in range(2)]
    policy = random.choice(["single-numa-node", "single-numa-node", "restricted"])
    listed = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": key, "capacity": "64", "allocatable": "64", "available": value}
                for key, value in one.items()
            ],
        }
        for number, one in enumerate(amounts)
    ]
    attributes = [{"name": "topologyManagerPolicy", "value": policy}]
    return _read({"metadata": {"name": name}, "attributes": attributes, "zones": listed})


def cpu_affinity(random: Random) -> str:
    """What a pod says about other pods that share its cores, L3 domains or NUMA nodes."""
    one = {
        random.choice(["avoid", "avoid", "prefer"]): {"matchLabels": {"app": random.choice(objects.APPS)}},
        "level": random.choice(["core", "numa"]),
        "required": random.random() < 0.8,
    }
    return json.dumps([one])


def cranes(random: Random, name: str) -> CraneTopology:
    """What gocrane's agent publishes."""
    policy = {"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"}
    listed = [
        {
            "name": f"node{number}",
            "type": "Node",
            "resources": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": f"{random.randint(0, 5)}"}},
        }
        for number in range(2)
    ]
    return msgspec.convert(
        {"metadata": {"name": name}, "craneManagerPolicy": policy, "zones": listed}, CraneTopology
    )
