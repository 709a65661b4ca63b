"""Put a recorded case to the scheduler's core, as events, and read its decision."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from corelane.kube.objects import Namespace, Node, Service
from corelane.kube.pod import Pod
from corelane.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    CycleDue,
    NodeChanged,
    ObjectChanged,
    PodChanged,
)
from corelane.scheduler.instructions import Bind, SetCondition

FILE = Path(__file__).parents[2] / "data" / "kube_scheduler.jsonl.gz"
Case = dict[str, Any]
NOT_LOOKED_AT = "didn't satisfy plugin(s) [NodeAffinity]"
"""kube-scheduler's text for nodes outside a list of names, whatever else is wrong with them; corelane names
their first reason, in the order of the plugins."""
_KINDS = (
    ("namespaces", Namespace),
    ("services", Service),
    ("classes", StorageClass),
    ("claims", PersistentVolumeClaim),
    ("volumes", PersistentVolume),
    ("csi_nodes", CSINode),
    ("csi_drivers", CSIDriver),
    ("capacities", CSIStorageCapacity),
    ("attachments", VolumeAttachment),
    ("nodes", Node),
)


@dataclass(frozen=True, slots=True)
class Decided:
    """The node that was chosen, or the message why there is none."""

    node: str = ""
    message: str = ""


def head(path: Path = FILE) -> Case:
    with gzip.open(path, "rt") as lines:
        return json.loads(next(lines))


def recorded(path: Path = FILE, family: str = "") -> Iterator[Case]:
    """Yield the cases of a family, or all; pods with a node name are no scheduler's to place."""
    with gzip.open(path, "rt") as lines:
        next(lines)
        for line in lines:
            if f'"family":"{family}' in line and "nodeName" not in (case := json.loads(line))["pod"]["spec"]:
                yield case


def changed(now: float, old: Any, new: Any) -> NodeChanged | ObjectChanged:
    """Return the event of a changed node or other object."""
    return (NodeChanged if isinstance(new or old, Node) else ObjectChanged)(now, old, new)


def core(case: Case) -> SchedulerCore:
    """Return a core that has been told everything but the pod to place."""
    made = SchedulerCore()
    for key, kind in _KINDS:
        for obj in case.get(key, []):
            made.handle(changed(0.0, None, _read(obj, kind)))
    for obj in [*case.get("pods", []), *case.get("nominated", [])]:
        made.handle(PodChanged(0.0, None, _pod(obj, made.name)))
    return made


def decide(case: Case) -> Decided:
    """Have the pod of the case placed."""
    made = core(case)
    made.handle(PodChanged(0.0, None, _pod(case["pod"], made.name)))
    for instruction in made.handle(CycleDue(0.0)):
        match instruction:
            case Bind():
                return Decided(instruction.node)
            case SetCondition():
                return Decided(message=instruction.message.partition(" preemption: ")[0])
    return Decided()


def difference(case: Case) -> str:
    """Return how the decision differs from the recorded one: "" if it does not.

    A node that kube-scheduler finds feasible is right, whichever; without one, its message is expected.
    """
    want, got = case["want"], decide(case)
    if got.node:
        wrong = want["filter"].get(got.node, {}) or want["prefilter"]
        return "" if got.node in want["feasible"] else f"placed on {got.node}, which is rejected: {wrong}"
    if want["feasible"]:
        return f"not placed ({got.message}), but {want['feasible']} are feasible"
    expected = want.get("message", got.message)  # An error inside a plugin has no message.
    if NOT_LOOKED_AT in expected or got.message == expected:
        return ""
    return f"{got.message!r}, not {expected!r}"


def _pod(obj: Case, scheduler: str) -> Pod:
    pod = _read(obj, Pod)
    return replace(pod, spec=replace(pod.spec, scheduler_name=scheduler))


def _read(obj: Case, kind: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(obj), type=kind)
