"""Reserve, Unreserve and Permit of a profile's plugins, and their work before a binding is sent."""

from typing import Final

from corelane.scheduler.cache.nodes import NodeCache, NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.points import SKIP, SUCCESS, UNSCHEDULABLE, WAIT
from corelane.scheduler.framework.plugin import Cycle, Rejection, Wait
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import PreBindWork

LONGEST_WAIT: Final = 15 * 60.0
"""Seconds; upstream's `maxTimeout` of Permit."""


def reserve(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Let each plugin book what it keeps for the pod; if one rejects or raises an error, undo all."""
    points = cycle.cluster.points
    points.begin("Reserve")
    try:
        for plugin in profile.reserves:
            if rejection := plugin.reserve(cycle, node):
                points.end(UNSCHEDULABLE)
                unreserve(profile, cycle.pod, node.name, cycle.cluster)
                return rejection
    except Exception:
        points.failed()
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
        raise
    points.end()
    return None


def unreserve(profile: Profile, pod: PodInfo, node: str, cluster: NodeCache) -> None:
    """Undo `reserve`, in reverse order; also the part of the others where a plugin raises an error."""
    points = cluster.points
    begun = points.now()
    for plugin in reversed(profile.reserves):
        try:
            plugin.unreserve(pod, node)
        except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
            cluster.faults.add(plugin.name, "unreserve", error)
    points.alone("Unreserve", profile.name, begun)


def permit(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | dict[str, float]:
    """Ask all Permit plugins: the first rejection, or the plugins that hold the binding, for how long (s).

    Where one raises an error, what was reserved is undone.
    """
    points = cycle.cluster.points
    points.begin("Permit")
    try:
        waits = _waits(profile, cycle, node)
    except Exception:
        points.failed()
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
        raise
    points.end(UNSCHEDULABLE if isinstance(waits, Rejection) else WAIT if waits else SUCCESS)
    return waits


def _waits(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | dict[str, float]:
    waits: dict[str, float] = {}
    for plugin in profile.permits:
        match plugin.permit(cycle, node):
            case Rejection() as rejection:
                return rejection
            case Wait(seconds):
                waits[plugin.name] = min(max(seconds, 0.0), LONGEST_WAIT)
    return waits


def reserve_and_permit(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | dict[str, float]:
    """Reserve, then ask the Permit plugins; after a rejection nothing is reserved."""
    if rejection := reserve(profile, cycle, node):
        return rejection
    waits = permit(profile, cycle, node)
    if isinstance(waits, Rejection):
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
    return waits


def pre_bind_work(profile: Profile, cycle: Cycle, node: NodeInfo) -> tuple[PreBindWork, ...]:
    """Return what the shell has to do before it binds the pod to the node.

    Where a plugin raises an error, what was reserved is undone.
    """
    points = cycle.cluster.points
    points.begin("PreBindPreFlight")
    try:
        every = [plugin.pre_bind_work(cycle, node) for plugin in profile.pre_binds]
    except Exception:
        points.failed()
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
        raise
    work = tuple(one for one in every if one is not None)
    points.end(SUCCESS if work else SKIP)
    return work
