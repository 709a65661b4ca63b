"""Consequences of each step of a binding, and of a Permit plugin that holds or denies it. No I/O."""

from collections.abc import Iterator
from functools import lru_cache

from corelane.cpuset import CPUSet
from corelane.scheduler.binding import claims
from corelane.scheduler.binding.bindings import (
    Binding,
    Bound,
    Denied,
    Released,
    Step,
    Vanished,
    Waits,
    as_sent,
)
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.failures import explain
from corelane.scheduler.instructions import Instruction, RecordPodEvent
from corelane.scheduler.queue.waiting import Waiting
from corelane.scheduler.state import SchedulerState


def carry_out(state: SchedulerState, step: Step, now: float) -> Iterator[Instruction]:
    """Carry out a step of the bindings."""
    match step:
        case Bound(binding, pod):
            if pod is None or as_sent(binding, pod):
                yield from bound(state, binding, now)
            else:  # The claim is where another scheduler bound the pod, until the informer shows it.
                claims.put_pod(state, pod.spec.node_name, PodInfo.of(pod), now)
                state.decisions.binding_ended(now, binding.uid, "bound-elsewhere", pod.spec.node_name)
        case Released(binding):
            unreserve(state, binding)
            state.decisions.binding_ended(now, binding.uid, "released", binding.failure)
            claims.release(state, binding.uid, now)
            state.cluster.nominations.evicting.discard(binding.uid)
            if state.schedules(binding.bind.pod):
                state.queue.retry(binding.waiting, now)
                why = binding.failure
                yield from explain(state, binding.waiting, now, "SchedulerError", why, claimed=True)
        case Waits(binding, seconds):
            yield from _waits(state, binding, seconds, now)
        case Denied(binding, plugin):
            unreserve(state, binding)
            waiting, unchanged = binding.waiting, binding.waiting.started == state.queue.changes.number
            claims.release(state, binding.uid, now)
            if unchanged:  # The end of its own claim does not help a pod; what else changed may.
                waiting.started = state.queue.changes.number
            yield from deny(state, waiting, plugin, binding.failure, now)
        case Vanished(binding):
            unreserve(state, binding)
            state.decisions.binding_ended(now, binding.uid, "vanished", binding.failure)
            claims.release(state, binding.uid, now)
        case _:
            yield step


def bound(state: SchedulerState, binding: Binding, now: float) -> Iterator[RecordPodEvent]:
    """Report it once: the pod may be seen bound before the answer to the binding arrives, or after."""
    if binding.recorded:
        return
    binding.recorded, bind = True, binding.bind
    state.decisions.binding_ended(now, binding.uid, "bound", "")
    if not state.schedules(bind.pod):
        return  # the scheduler that chose the node has its own event
    message = f"Successfully assigned {bind.pod.title} to {bind.node}"
    if cpus := ", ".join(f"{name} {_cpu_list(cpus)}" for name, cpus in sorted(bind.assignments.items())):
        message += f" (CPUs: {cpus})"
    yield RecordPodEvent(bind.pod, "Normal", "Scheduled", message)


@lru_cache(4096)
def _cpu_list(cpus: CPUSet) -> str:
    """Return a list of CPUs; equal nodes give equal ones."""
    return str(cpus)


def unreserve(state: SchedulerState, binding: Binding) -> None:
    """Undo what the profile's plugins have reserved for the pod."""
    claims.unreserve(binding.profile, binding.waiting.info, binding.bind.node, state.cluster)


def _waits(state: SchedulerState, binding: Binding, seconds: float, now: float) -> Iterator[RecordPodEvent]:
    """Say why nothing happens to a pod for a minute."""
    pod, node = binding.bind.pod, binding.bind.node
    deleted = " (deleted)" if binding.node_deleted else ""
    message = (
        f"binding to node {node}{deleted}: the outcome of a request is unknown and the pod has no node; "
        f"the request may still be carried out, the pod is read again in {seconds:.0f} s"
    )
    state.decisions.binding_open(now, binding.uid, "waits", message)
    if state.schedules(pod):
        yield RecordPodEvent(pod, "Warning", "FailedScheduling", message)


# Permit.


def deny(
    state: SchedulerState, waiting: Waiting, plugin: str, message: str, now: float
) -> Iterator[Instruction]:
    """Park a pod that a Permit plugin denies, with a message in the form of kube-scheduler's FitError."""
    state.decisions.denied(now, waiting.uid, plugin, message)
    if not state.schedules(waiting.info.pod):
        return
    why = f"0/1 nodes are available: 1 {message}."
    state.queue.deny(waiting, now, plugin, why)
    yield from explain(state, waiting, now, "Unschedulable", why, claimed=True)


def give_way(state: SchedulerState, uid: str, preemptor: Waiting, now: float) -> Iterator[Instruction]:
    """Release the claim of a victim that is only held, and try it again: it is not deleted."""
    binding = state.bindings.drop(uid)
    assert binding is not None
    unreserve(state, binding)
    claims.forget_ended(state, uid, now)
    why = f"preempted by pod {preemptor.uid} while Permit plugins held it"
    state.decisions.binding_ended(now, uid, "released", why)
    claims.release(state, uid, now)
    yield claims.preempted(binding.bind.pod, preemptor.info.pod, binding.bind.node, claim_only=True)
    if state.schedules(binding.bind.pod):
        state.queue.retry(binding.waiting, now)
        yield from explain(state, binding.waiting, now, "SchedulerError", why, claimed=True)
