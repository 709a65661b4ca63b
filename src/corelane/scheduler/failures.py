"""What is written about a pod that was not placed: its condition, events at a limited rate, and errors."""

from collections.abc import Iterator
from heapq import nsmallest
from pathlib import Path
from traceback import walk_tb
from types import CodeType
from typing import Final

from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import Fact
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.explain import nearest as live
from corelane.scheduler.framework.checked import WrongAnswer
from corelane.scheduler.framework.plugin import Cycle, StateError
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.framework.trials import first_rejection
from corelane.scheduler.instructions import Instruction, NearestNode, RecordPodEvent, SetCondition
from corelane.scheduler.plugins.node_resources import CPU_PLACEMENT
from corelane.scheduler.queue.waiting import Waiting
from corelane.scheduler.state import SchedulerState

SAME_EVENT_SECONDS: Final = 300.0
NEW_EVENT_SECONDS: Final = 10.0
"""Least time between two events about a pod, with the same message and with another one."""
_ASKED: Final = 16
"""Nodes without enough CPUs that are asked whether anything else is missing there."""
_HELP_SECONDS: Final = 0.2
"""Least time between two events that say what would help."""


def explain(
    state: SchedulerState,
    waiting: Waiting,
    now: float,
    reason: str,
    why: str,
    attempt: Attempt | None = None,
    *,
    claimed: bool = False,
) -> Iterator[Instruction]:
    """Yield the pod's condition, which always carries the last result, and an event at a limited rate.

    Of a pod that was `claimed`, the node of the claim may be written as its nominated node meanwhile.
    """
    pod, waiting.reason = waiting.info.pod, why
    nominated = state.cluster.nominations.of(waiting.uid)
    written = _has_condition(pod, reason, why) and pod.status.nominated_node_name == nominated
    if claimed or not written:
        yield SetCondition(pod, reason, why, nominated)
    since = now - waiting.event_at
    if since >= (NEW_EVENT_SECONDS if why != waiting.event else SAME_EVENT_SECONDS):
        waiting.event, waiting.event_at = why, now
        # What another node lacks is no remedy while the nominated one is being made free.
        nearest, text = _remedy(state, attempt, now, nominated=bool(nominated))
        yield RecordPodEvent(pod, "Warning", "FailedScheduling", why, nearest, text)


def _remedy(
    state: SchedulerState, attempt: Attempt | None, now: float, *, nominated: bool
) -> tuple[NearestNode | None, str]:
    """What would help; plugins are asked once more, and one that raises an error now says nothing."""
    if attempt is None:
        return None, ""
    profile = state.profile_of(attempt.cycle.pod.pod)
    try:
        if nearest := None if nominated else _nearest(attempt.cycle):
            return nearest, ""
        if now < state.remedy_at:
            return None, ""
        state.remedy_at = now + _HELP_SECONDS
        return None, live.help_for(profile, state.cluster, attempt)
    except Exception as error:  # noqa: BLE001 - of a plugin; those of the core are raised again
        note_fault(state, profile, error)
        return None, ""


def _nearest(cycle: Cycle) -> NearestNode | None:
    """Of the nodes that lack CPUs for the pod and nothing else, the one with the most free exclusive CPUs."""
    lacking, request = cycle.admissions.lacking, cycle.pod.request
    if not lacking or request is None:
        return None
    others = tuple(plugin for plugin in cycle.filters if plugin.name != CPU_PLACEMENT)
    free = {name: int(node.canonical.facts[Fact.FREE]) for name, node in lacking.items()}
    for node in nsmallest(_ASKED, lacking.values(), key=lambda node: (-free[node.name], node.name)):
        if node.cpu_state and first_rejection(others, cycle, node) is None:
            return NearestNode(node.name, node.cpu_state, request)
    return None


def _has_condition(pod: Pod, reason: str, message: str) -> bool:
    scheduled = condition(pod.status.conditions, "PodScheduled")
    expected = ("False", reason, message)
    return scheduled is not None and (scheduled.status, scheduled.reason, scheduled.message) == expected


def unknown_cpus(before: PodInfo | None, info: PodInfo) -> Iterator[RecordPodEvent]:
    """Yield an event about a bound pod whose CPUs cannot be read, unless its former version had the same."""
    if (why := info.unreadable) and (before is None or before.unreadable != why):
        yield RecordPodEvent(info.pod, "Warning", "CPUsUnknown", f"CPUs of the pod cannot be read: {why}")


def retry_after_error(
    state: SchedulerState, waiting: Waiting, profile: Profile, error: Exception, now: float
) -> Iterator[Instruction]:
    """Have a pod tried again after its back-off, with the error of a plugin as its condition."""
    why = attempt_failed(state, waiting, profile, error, now)
    state.queue.retry(waiting, now)
    yield from explain(state, waiting, now, "SchedulerError", why)


def attempt_failed(
    state: SchedulerState, waiting: Waiting, profile: Profile, error: Exception, now: float
) -> str:
    """Report the error that ended an attempt, which only reads the state; return plugin and error.

    An error that no plugin raised is a fault of the core: it is raised again.
    """
    state.cluster.points.failed()
    plugin = raised_by(error, profile)
    if not plugin:
        raise error
    state.decisions.attempt_failed(now, waiting, plugin, error)
    return described(plugin, error)


def note_fault(state: SchedulerState, profile: Profile, error: Exception) -> None:
    """Report an error of a plugin that was asked once more, for people; of a kind, the first one."""
    plugin = raised_by(error, profile)
    if not plugin:
        raise error
    state.cluster.faults.add(plugin, "explain", error)


def raised_by(error: Exception, profile: Profile) -> str:
    """Return the name of the innermost plugin in whose methods an error was raised; "" without any."""
    if isinstance(error, WrongAnswer | StateError):
        return error.plugin
    names, innermost = {id(plugin): plugin.name for plugin in profile.plugins}, ""
    for frame, _ in walk_tb(error.__traceback__):
        innermost = names.get(id(frame.f_locals.get(_first_argument(frame.f_code))), innermost)
    return innermost


def _first_argument(code: CodeType) -> str:
    return code.co_varnames[0] if code.co_argcount else ""


def described(plugin: str, error: Exception) -> str:
    """Return what a plugin raised, and where; of a wrong answer, what it was."""
    if isinstance(error, WrongAnswer | StateError):
        return " ".join(f"plugin {plugin} failed: {error}".split())
    *_, (frame, line) = walk_tb(error.__traceback__)
    path = Path(frame.f_code.co_filename)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"plugin {plugin} failed: {text} ({path.parent.name}/{path.name}, line {line})"
