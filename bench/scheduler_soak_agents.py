"""The nodes of a scheduler's soak: they carry out what is bound, and book every CPU by the bindings alone.

A node's agent is played by the ledger (`node.admit`) and publishes a second later. The book knows nothing
of ledgers: CPU ids come from the annotations of bound pods, and a CPU is free once its pod was released. A
deleted pod terminates: the node releases its CPUs, then the kubelet removes the object. By force, the object
goes first.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import scheduler_load as load

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState

PUBLISHED_EACH_S: Final = 1.0
RELEASED_AFTER_S: Final = (0.1, 2.0)
GRACE_S: Final = 30
PATIENCE_S: Final = 300.0
SETTLED: Final = frozenset({404, 409})
"""Answers after which a repeated request has nothing left to do."""
REPEATED: Final = frozenset({0, 408, 429})
"""Answers, or none, after which a request is sent again; and all 5xx."""


async def insist(call: Callable[[], Awaitable[object]]) -> None:
    """Send a request until it is answered, however often the server restarts meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            await call()
        except APIError as error:
            if error.code in SETTLED:
                return
            if time.monotonic() > deadline or not (error.code in REPEATED or error.code >= 500):
                raise
            await asyncio.sleep(0.5)
        else:
            return


@dataclass(frozen=True, slots=True)
class Placed:
    """A bound pod, with the CPU ids that its binding names."""

    node: str
    title: str
    cpus: frozenset[int]


@dataclass(slots=True)
class Findings:
    """What the nodes saw."""

    bound: int = 0
    booked_twice: list[str] = field(default_factory=list)
    not_released: list[str] = field(default_factory=list)
    """CPUs bound again though their pod, deleted by force, was not released by the node yet."""
    refused: list[str] = field(default_factory=list)
    reallocated: int = 0
    on_deleted_nodes: int = 0


class Agents:
    """All nodes: their ledgers, the book, and what is still to be published."""

    def __init__(self, client: KubeClient, chance: random.Random) -> None:
        self.client, self.chance = client, chance
        self.states: dict[str, NodeState] = {}
        self.findings = Findings()
        self.pending: dict[str, Pod] = {}
        """Pods without a node, by UID."""
        self._placed: dict[str, Placed] = {}
        """By UID, until its node has released it."""
        self._book: dict[tuple[str, int], str] = {}
        """UID of the pod that has a CPU of a node."""
        self._deleted: set[str] = set()
        """UIDs of placed pods that the server has no longer."""
        self._terminating: set[str] = set()
        self._changed: set[str] = set()
        self._informer = Informer(client, Pod, handler=self._handle, namespace="default")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._numbers = 0

    async def run(self) -> None:
        """Carry out bindings and publish, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            tasks.create_task(self._publish())

    async def add(self) -> None:
        """Add a node, as a kubelet and its agent do."""
        number, self._numbers = self._numbers, self._numbers + 1
        name = load.node_name(number)
        self.states[name] = load.state(name)
        await insist(lambda: self.client.create(load.node_object(number)))
        # A server may taint a new node as not ready, and no node controller takes that away.
        await insist(lambda: self.client.patch(Node, name, {"spec": {"taints": None}}))
        await insist(lambda: self.client.create(load.topology_object(name, self.states[name])))

    async def remove(self, name: str) -> None:
        """Delete a node with all that is on it, in the order in which a cluster does."""
        del self.states[name]
        self._changed.discard(name)
        await insist(lambda: self.client.delete(Node, name))
        await insist(lambda: self.client.delete(NodeResourceTopology, name))
        for pod in [pod for pod in self._informer.objects.values() if pod.spec.node_name == name]:
            await self.delete(pod.metadata.name)

    async def cordon(self, name: str, *, unschedulable: bool) -> None:
        await insist(lambda: self.client.patch(Node, name, {"spec": {"unschedulable": unschedulable}}))

    async def delete(self, pod: str, grace: int = 0) -> None:
        """Delete a pod, by force unless it has a time to terminate (s)."""
        await insist(lambda: self.client.delete(Pod, pod, namespace="default", grace_seconds=grace))

    def fitting(self) -> list[str]:
        """Return the pending pods that some node would admit, without those with rules about other pods."""
        return [
            pod.title
            for pod in self.pending.values()
            if not pod.spec.affinity and any(self._admits(state, pod) for state in self.states.values())
        ]

    @staticmethod
    def _admits(state: NodeState, pod: Pod) -> bool:
        return nodes.admit(state, translate.request(pod))[1].admitted

    # Changes of pods.

    def _handle(self, change: ObjectChange[Pod]) -> None:
        if change.new is None:
            assert change.old is not None
            self.pending.pop(change.old.metadata.uid, None)
            if change.old.metadata.uid in self._placed:
                self._deleted.add(change.old.metadata.uid)
                asyncio.get_running_loop().call_later(
                    self.chance.uniform(*RELEASED_AFTER_S), self._release, change.old.metadata.uid
                )
        elif not change.new.spec.node_name:
            self.pending[change.new.metadata.uid] = change.new
        elif change.new.metadata.uid not in self._placed and not change.new.metadata.deletion_timestamp:
            self.pending.pop(change.new.metadata.uid, None)
            self._carry_out(change.new)
        if change.new is not None and change.new.metadata.deletion_timestamp:
            self._start(self._terminate(change.new))

    async def _terminate(self, pod: Pod) -> None:
        """End a pod as a kubelet does: the object goes once its CPUs are released."""
        uid = pod.metadata.uid
        if uid in self._terminating:
            return
        self._terminating.add(uid)
        await asyncio.sleep(self.chance.uniform(*RELEASED_AFTER_S))
        self._release(uid)
        await self.delete(pod.metadata.name)
        self._terminating.discard(uid)

    def _carry_out(self, pod: Pod) -> None:
        name, uid = pod.spec.node_name, pod.metadata.uid
        self.findings.bound += 1
        if name not in self.states:
            self.findings.on_deleted_nodes += 1
            self._start(self.delete(pod.metadata.name))
            return
        placed = self._placed[uid] = Placed(name, pod.title, bound_cpus(pod.metadata.annotations))
        for cpu in placed.cpus:
            if owner := self._book.get((name, cpu)):
                moment = time.strftime("%H:%M:%S")
                what = f"{moment} {name} CPU {cpu}: {self._placed[owner].title}, then {pod.title}"
                deleted = owner in self._deleted
                (self.findings.not_released if deleted else self.findings.booked_twice).append(what)
        state, decision = nodes.admit(self.states[name], translate.request(pod))
        if not decision.admitted:
            self.findings.refused.append(f"{pod.title} on {name}: {decision.message}")
            self._start(self.delete(pod.metadata.name))
            return
        self.states[name] = state
        self._changed.add(name)
        allocated = frozenset(cpu for one in decision.assignments.values() for cpu in one)
        self.findings.reallocated += bool(placed.cpus) and allocated != placed.cpus
        self._placed[uid] = replace(placed, cpus=allocated)
        self._book |= dict.fromkeys(((name, cpu) for cpu in allocated), uid)
        running = {"status": {"phase": "Running"}}
        self._start(
            insist(
                lambda: self.client.patch(
                    Pod, pod.metadata.name, running, namespace="default", subresource="status"
                )
            )
        )

    def _release(self, uid: str) -> None:
        placed = self._placed.pop(uid, None)
        self._deleted.discard(uid)
        if placed is None:
            return
        for cpu in placed.cpus:
            if self._book.get((placed.node, cpu)) == uid:
                del self._book[placed.node, cpu]
        if placed.node in self.states:
            self.states[placed.node] = nodes.release(self.states[placed.node], uid)
            self._changed.add(placed.node)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(PUBLISHED_EACH_S)
            for name in sorted(self._changed):
                self._changed.discard(name)
                if name in self.states:
                    body = translate.as_patch(load.topology_object(name, self.states[name]))
                    await insist(
                        lambda name=name, body=body: self.client.patch(NodeResourceTopology, name, body)
                    )


def bound_cpus(annotations: Mapping[str, str]) -> frozenset[int]:
    """Return the CPU ids that a binding names, read without corelane's own code."""
    if text := annotations.get("corelane.io/container-cpusets"):
        lists = list(json.loads(text).values())
    else:
        lists = [
            json.loads(annotations.get("scheduling.koordinator.sh/resource-status", "{}")).get("cpuset", "")
        ]
    cpus: set[int] = set()
    for part in ",".join(lists).split(","):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1)) if part else set()
    return frozenset(cpus)
