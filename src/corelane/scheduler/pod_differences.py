"""How a pod that the API server shows differs from what was known of it, or sent for it."""

from operator import attrgetter
from typing import Final

from corelane.kube import translate
from corelane.kube.pod import Pod, PodSpec
from corelane.scheduler.bindings import Binding

_but_node: Final = attrgetter(*(name for name in PodSpec.__struct_fields__ if name != "node_name"))
"""All fields of a spec but the node's name."""


def as_sent(binding: Binding, pod: Pod) -> bool:
    """Whether a bound pod has the node and annotations of this scheduler's binding."""
    sent, annotations = binding.bind, pod.metadata.annotations
    return pod.spec.node_name == sent.node and sent.annotations.items() <= annotations.items()


def is_claimed(binding: Binding, pod: Pod) -> bool:
    """Whether a bound pod is just as it was claimed."""
    before, after, bind = binding.waiting.info.pod, pod.metadata, binding.bind
    if after.labels != before.metadata.labels or after.deletion_timestamp:
        return False
    if after.annotations != {**before.metadata.annotations, **bind.annotations}:
        return False
    return _but_node(pod.spec) == _but_node(before.spec)


def requests_changed(old: Pod, new: Pod) -> bool:
    before, after = old.metadata, new.metadata
    if bool(before.deletion_timestamp) != bool(after.deletion_timestamp):
        return True
    if old.status != new.status and translate.resized(old) != translate.resized(new):
        return True
    if before.owner_references != after.owner_references:
        return True
    return (old.spec, before.labels, before.annotations) != (new.spec, after.labels, after.annotations)


def status_changed(old: Pod, new: Pod) -> bool:
    """Whether what counts of a placed pod's status changed: for exporters' zones, and for preemption."""
    before, after = old.status, new.status
    if old.metadata.deletion_timestamp != new.metadata.deletion_timestamp:
        return True
    return (before.phase, before.start_time) != (after.phase, after.start_time)
