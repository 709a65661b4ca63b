"""The scheduler: informers feed the core, whose instructions become requests to the API server."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.informer import Informer, InformerReporter, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Node, NodeResourceTopology, NodeResourceTopologyV1Alpha1
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError
from corelane.scheduler import events
from corelane.scheduler.binding.binder import Binder, BinderReporter, now
from corelane.scheduler.binding.claims import preempted
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.daemon.garbage import YoungObjects
from corelane.scheduler.daemon.object_watches import ObjectWatches
from corelane.scheduler.daemon.pod_status_writer import (
    EventRecorder,
    Evictor,
    Leadership,
    PodStatusWriter,
    WriteReporter,
)
from corelane.scheduler.events import (
    BindRequested,
    CycleDue,
    PermitDecided,
    PodChanged,
    TopologyChanged,
)
from corelane.scheduler.framework.plugin import DecidingPermitPlugin
from corelane.scheduler.framework.profile import DEFAULT_NAME, Profile
from corelane.scheduler.instructions import Bind, Evict, Instruction, LookUpPod, SetCondition, StopPreBind
from corelane.scheduler.queue.waiting import Backoff
from corelane.scheduler.state import DecisionReporter

_MOST_WAITING: Final = 10_000
_RECORDS: Final = (keys.RESOURCE_STATUS, keys.CONTAINER_CPUSETS)
_NOT_OF_THE_NODE: Final = frozenset({"", "Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown"})
"""Reasons of failed pods that are not refusals at admission; "" is a container that failed."""


class BoundPodsReporter:
    """Hooks for logs and metrics, empty by default."""

    def reallocated(self, pod: Pod, proposed: str, allocated: str) -> None:
        """A node allocated other CPUs than the scheduler had proposed; both as text."""

    def refused(self, pod: Pod, node: str, reason: str, message: str) -> None:
        """A node refused a pod after it was bound."""


class BoundPods:
    """Reports whether a node refused a bound pod, or allocated other CPUs than were proposed.

    A refused pod has phase Failed and a reason of its node's (OutOfcpu, TopologyAffinityError, …). The
    scheduler's watch leaves ended pods out, so a refused pod vanishes in phase Pending, and is read once.
    """

    def __init__(self, client: KubeClient, reporter: BoundPodsReporter) -> None:
        self._client = client
        self._reporter = reporter
        self._vanished: asyncio.Queue[Pod] = asyncio.Queue(_MOST_WAITING)

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        """Take a change of a pod."""
        if old is None or not old.spec.node_name or keys.SCHEDULED_BY not in old.metadata.annotations:
            return
        if new is not None and not new.ended:
            self._compare(old, new)
        elif old.status.phase == "Pending" and not old.metadata.deletion_timestamp:
            if new is not None:
                self._report_refusal(new)
            elif not self._vanished.full():
                self._vanished.put_nowait(old)

    async def run(self) -> NoReturn:
        """Read pods that vanished before they ran, until cancelled."""
        while True:
            pod = await self._vanished.get()
            try:
                current = await self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
            except APIError:
                # Deleted since, or unreadable: a count that is missing does no harm.
                continue
            if current.metadata.uid == pod.metadata.uid:
                self._report_refusal(current)

    def _report_refusal(self, pod: Pod) -> None:
        status = pod.status
        if status.phase == "Failed" and status.reason not in _NOT_OF_THE_NODE:
            self._reporter.refused(pod, pod.spec.node_name, status.reason, status.message)

    def _compare(self, old: Pod, new: Pod) -> None:
        before, after = old.metadata.annotations, new.metadata.annotations
        if all(before.get(key) == after.get(key) for key in _RECORDS):
            return
        proposed, allocated = _cpus(old), _cpus(new)
        if proposed and allocated and proposed != allocated:
            self._reporter.reallocated(new, proposed, allocated)


def _cpus(pod: Pod) -> str:
    """CPUs of the pod's containers as text; "" without any or for annotations that cannot be read."""
    try:
        proposal = translate.request(pod).proposal
    except TranslationError:
        return ""
    return ", ".join(f"{name} {cpus}" for name, cpus in sorted(proposal.items()))


T = TypeVar("T", bound=Object)

_ALIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
_UNDEFINED_SECONDS: Final = 30.0
"""Longest time between two lists of NodeResourceTopologies while the kind is not defined."""
_SLICE_SECONDS: Final = 0.003
"""Attempts are made for this long before other tasks run."""


class SchedulerReporter(InformerReporter, BinderReporter, BoundPodsReporter, WriteReporter):
    """Hooks for logs, metrics and tests, empty by default; those of the parts included."""

    def started(self, name: str) -> None:
        """All objects are listed, and scheduling starts."""

    def binding(self, pod: Pod, node: str, assignments: Mapping[str, CPUSet]) -> None:
        """A binding is sent, with these CPUs for the pod's containers."""

    def unschedulable(self, pod: Pod, reason: str, message: str) -> None:
        """A pod did not fit on any node, or its binding failed."""

    def core_failed(self, what: str, error: Exception) -> None:
        """An object raised an error in the core, a bug; it is treated as absent."""

    times_events = False
    """Whether `event_handled` is to be called."""

    def event_handled(self, event: str, seconds: float) -> None:
        """A change of an object, by kube-scheduler's name of the event, was handled."""

    def unusable_topology(self, node: str, problem: str) -> None:
        """The NodeResourceTopology of a node is invalid."""


class EventIntake:
    """Gives events to the core, and keeps its instructions until they are carried out."""

    def __init__(
        self, core: SchedulerCore, reporter: SchedulerReporter, lease: Leadership | None = None
    ) -> None:
        self._core, self._reporter, self._lease = core, reporter, lease
        self._young = YoungObjects()
        self.instructions: deque[Instruction] = deque()
        self.changed = asyncio.Event()
        """Set by every event."""

    def handle(self, event: events.SchedulerEvent) -> None:
        self.instructions += self._timed(event) if self._reporter.times_events else self._decide(event)
        self.changed.set()
        self._young.event_handled()

    def _timed(self, event: events.SchedulerEvent) -> list[Instruction]:
        """As `_decide`; what it took is reported by the event's names."""
        begun = time.perf_counter()
        instructions = self._decide(event)
        taken = time.perf_counter() - begun
        for name in events.names_of(event, self._core.profiles):
            self._reporter.event_handled(name, taken)
        return instructions

    def _decide(self, event: events.SchedulerEvent) -> list[Instruction]:
        """What the core says. Where a topology is too much for it, that node goes on without one.

        After any other error the state may be wrong: it ends the scheduler, and the next start rebuilds it.
        """
        try:
            return self._core.handle(event)
        except Exception as error:
            if not isinstance(event, TopologyChanged) or event.new is None:
                raise
            self._reporter.core_failed(f"NodeResourceTopology {event.new.metadata.name}", error)
            return self._core.handle(TopologyChanged(event.now, event.old or event.new, None))

    def unsendable(self, bind: Bind) -> str:
        """Return why a binding must not be sent now; "" if it may."""
        if self._lease is not None and not self._lease.leading:
            return "this replica no longer holds the lease"
        return self._core.bindings.unsendable(bind)

    def profile(self, scheduler_name: str) -> Profile:
        return self._core.profiles.get(scheduler_name, self._core.profile)


class Scheduler:
    """Schedules the pods whose `schedulerName` is `name`; `identity` names this replica in what it binds."""

    def __init__(
        self,
        client: KubeClient,
        *,
        name: str = DEFAULT_NAME,
        profile: Profile | None = None,
        reporter: SchedulerReporter | None = None,
        decisions: DecisionReporter | None = None,
        identity: str = "",
        lease: Leadership | None = None,
        profiles: Sequence[Profile] = (),
        backoff: Backoff | None = None,
        recorder: EventRecorder | None = None,
        unserved: Collection[type[Object]] = (),
    ) -> None:
        """Once the `lease` is lost, nothing is bound or evicted.

        `recorder` creates events in place of requests. `unserved` are kinds that the server is known not to
        serve: it is not asked for them.
        """
        self.core = SchedulerCore(
            name, profile, decisions, identity or name, profiles=profiles, backoff=backoff
        )
        name = self.core.name
        self._client = client
        self._reporter = reporter or SchedulerReporter()
        self._intake = intake = EventIntake(self.core, self._reporter, lease)
        self._binder = Binder(client, intake, reporter=self._reporter)
        self._writer = PodStatusWriter(client, name, self._reporter, self._binder, recorder)
        self._evictor = Evictor(client, name, intake, self._writer, self._reporter, lease)
        self._bound_pods = BoundPods(client, self._reporter)
        self._draining = False
        self._started = False
        self._informers: tuple[Informer[Any], ...] = (
            self._informer(Node, events.NodeChanged),
            self._informer(NodeResourceTopology, events.TopologyChanged, older=NodeResourceTopologyV1Alpha1),
            self._informer(Pod, events.PodChanged, field_selector=_ALIVE),
        )
        self._objects = ObjectWatches(client, intake, self._reporter, unserved)

    def _informer(
        self,
        kind: type[T],
        event: Callable[[float, T | None, T | None], events.SchedulerEvent],
        field_selector: str | None = None,
        older: type[T] | None = None,
    ) -> Informer[T]:
        def handle(change: ObjectChange[T]) -> None:
            changed = event(now(), change.old, change.new)
            if isinstance(changed, PodChanged):
                self._bound_pods.changed(changed.old, changed.new)
            self._intake.handle(changed)
            self._report_problem(kind, change.new)

        return Informer(
            self._client,
            kind,
            handler=handle,
            field_selector=field_selector,
            reporter=self._reporter,
            # A cluster may have nodes without a published topology only, and no definition of the kind.
            optional=kind is NodeResourceTopology,
            absent_seconds=_UNDEFINED_SECONDS,
            older=older,
            remainders=True,
            cached=kind is NodeResourceTopology,  # 80 MB for 5,000 nodes: pages of etcd take 4 s, its cache 1
        )

    def _report_problem(self, kind: type[Object], new: Object | None) -> None:
        if kind is NodeResourceTopology and new is not None:
            node = self.core.cluster.get(new.metadata.name)
            if node is not None and node.problem:
                self._reporter.unusable_topology(node.name, node.problem)

    async def run(self) -> None:
        """Schedule until cancelled. No pod is placed before nodes, topologies and pods are listed."""
        self._give_permits()
        async with asyncio.TaskGroup() as tasks:
            for part in (self._binder, self._writer, self._evictor, self._bound_pods, self._objects):
                tasks.create_task(part.run())
            for informer in self._informers:
                tasks.create_task(informer.run())
            tasks.create_task(self._schedule())
            for informer in self._informers:
                await informer.synced()
            await self._objects.settled()
            self._started = True
            self._reporter.started(self.core.name)
            self._intake.changed.set()

    async def drain(self, seconds: float) -> int:
        """Make no more attempts, wait for the bindings under way, and return how many are left."""
        self._draining = True
        self._carry_out_all()
        self._binder.abandon_preparations()
        try:
            async with asyncio.timeout(seconds):
                while self._binder.unfinished:
                    await self._binder.wait_idle()
                    self._carry_out_all()  # what follows from the last answers, such as a look-up
        except TimeoutError:
            pass
        return self._binder.unfinished

    def request_bind(self, pod: Pod, node: str, profile: Profile) -> None:
        """Claim the pod's CPUs on a node that another scheduler chose, and bind it, if it fits there."""
        self._intake.handle(BindRequested(now(), pod, node, profile))

    def decide_permit(self, uid: str, plugin: str, *, allowed: bool, message: str = "") -> None:
        """Allow or deny, for a Permit plugin, the binding of a pod that it holds; else do nothing."""
        self._intake.handle(PermitDecided(now(), uid, allowed, plugin, message))

    def _give_permits(self) -> None:
        """What a plugin decides takes effect after the event that the core is handling."""
        loop = asyncio.get_running_loop()

        def decide(uid: str, plugin: str, *, allowed: bool, message: str = "") -> None:
            call = partial(self.decide_permit, uid, plugin, allowed=allowed, message=message)
            loop.call_soon_threadsafe(call)

        for profile in self.core.profiles.values():
            for plugin in profile.permits:
                if isinstance(plugin, DecidingPermitPlugin):
                    try:
                        plugin.decides_with(decide)
                    except Exception as error:  # noqa: BLE001 - of a third party's plugin
                        self._reporter.plugin_failed(plugin.name, "decides_with", error)

    @property
    def synced(self) -> bool:
        """Whether all objects are listed, and scheduling has started."""
        return self._started

    @property
    def unfinished_bindings(self) -> int:
        """Number of bindings and look-ups that wait, are prepared or under way."""
        return self._binder.unfinished

    async def _schedule(self) -> NoReturn:
        while True:
            self._intake.changed.clear()
            self._carry_out_all()
            attempts = self._started and not self._draining
            if attempts:
                begun = time_now = now()  # Other tasks run in between.
                while not self._draining and self.core.ready(time_now):
                    self._intake.handle(CycleDue(time_now))
                    self._carry_out_all()
                    time_now = now()
                    if time_now - begun >= _SLICE_SECONDS:
                        await asyncio.sleep(0)
                        self._carry_out_all()
                        begun = time_now = now()
            try:
                async with asyncio.timeout_at(self.core.next_time() if attempts else None):
                    await self._intake.changed.wait()
            except TimeoutError:
                pass

    def _carry_out_all(self) -> None:
        """Carry out what the core has said, in its order."""
        while self._intake.instructions:
            instruction = self._intake.instructions.popleft()
            match instruction:
                case Bind():
                    self._reporter.binding(instruction.pod, instruction.node, instruction.assignments)
                    self._writer.being_bound(instruction.pod.metadata.uid)
                    self._binder.put(instruction)
                case LookUpPod():
                    self._binder.put(instruction)
                case Evict():
                    victim, preemptor, node = instruction.victim, instruction.preemptor, instruction.node
                    why = f"preempted by pod {preemptor.metadata.uid}"
                    if self._binder.stop_preparing(victim.metadata.uid, why):
                        # The binding is only prepared: its claim is released, and the pod not deleted.
                        self._writer.put(preempted(victim, preemptor, node, claim_only=True))
                    else:
                        self._evictor.put(instruction)
                case StopPreBind(uid, why):
                    self._binder.stop_preparing(uid, why)
                case SetCondition():
                    self._reporter.unschedulable(instruction.pod, instruction.reason, instruction.message)
                    self._writer.put(instruction)
                case _:
                    self._writer.put(instruction)
