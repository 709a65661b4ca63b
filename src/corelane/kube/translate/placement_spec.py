"""How a pod wants its CPUs: Koordinator's labels and annotations, gocrane's, and ours, as `PlacementSpec`."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from corelane.kube import keys
from corelane.kube.pod import Pod
from corelane.kube.translate import affinities, specs
from corelane.kube.translate.annotations import annotation, boolean, label, tree, word
from corelane.kube.translate.errors import TranslationError
from corelane.workload import (
    Band,
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    NUMAPolicy,
    NUMAStrategy,
    PlacementSpec,
    PodQOS,
)

__all__ = ["band", "faults", "read"]

_BANDS: Final = {9: Band.PROD, 7: Band.MID, 5: Band.BATCH, 3: Band.FREE}
"""By the thousands of a priority."""
_KINDS: Final = ("P", "M", "E")
_NOTHING: Final = PlacementSpec()


def read(pod: Pod) -> PlacementSpec:
    """Everything that the pod's labels and annotations say about its CPUs.

    Raises TranslationError for the first that cannot be meant; `faults` has them all.
    """
    fields: dict[str, Any] = {}
    for one in _readings(pod):
        fields |= one()
    return PlacementSpec(**fields) if fields else _NOTHING


def faults(pod: Pod) -> tuple[TranslationError, ...]:
    """Everything in a pod's labels and annotations that cannot be meant, for lints and previews."""
    found = []
    for one in _readings(pod):
        try:
            one()
        except TranslationError as error:
            found.append(error)
    return tuple(found)


def band(priority: int) -> Band | None:
    """The band that a pod's priority lies in, if it lies in one."""
    return _BANDS.get(priority // 1000)


def _readings(pod: Pod) -> Iterator[Callable[[], dict[str, Any]]]:
    """One reading for each label and annotation that is there."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    for key, reader in _LABELS.items():
        if key in labels:
            yield partial(reader, label(key), labels[key])
    if keys.PRIORITY_CLASS not in labels and (found := band(pod.spec.priority)):
        yield partial(dict, band=found)
    for key, reader in _ANNOTATIONS.items():
        if key in annotations:
            yield partial(reader, annotation(key), annotations[key])


def _qos(field: str, text: str) -> dict[str, Any]:
    return {"qos": word(field, text, PodQOS)}


def _band(field: str, text: str) -> dict[str, Any]:
    return {"band": word(field, text, Band)}


def _resource_spec(field: str, text: str) -> dict[str, Any]:
    """A required bind policy hides the preferred one, as upstream."""
    spec = specs.read(field, text)
    required, preferred = (
        word(f"{field}.{name}", spec[name], BindPolicy, ("", "Default"))
        for name in (specs.REQUIRED, specs.PREFERRED)
    )
    exclusive = spec[specs.EXCLUSIVE]
    policy = word(f"{field}.{specs.EXCLUSIVE}", exclusive, ExclusivePolicy, ("", "Default", "None"))
    return {
        "bind": required if spec[specs.REQUIRED] else preferred,
        "bind_required": bool(spec[specs.REQUIRED]),
        "exclusive_policy": ExclusivePolicy.NONE if exclusive == "None" else policy,
    }


def _numa_spec(field: str, text: str) -> dict[str, Any]:
    spec = tree(field, text, ("numaTopologyPolicy", "singleNUMANodeExclusive", "numaAllocateStrategy"))
    exclusive = spec.get("singleNUMANodeExclusive")
    if exclusive not in (None, "", "Required", "Preferred"):
        raise TranslationError(f"{field}.singleNUMANodeExclusive", exclusive, "use Required or Preferred")
    return {
        "numa": word(f"{field}.numaTopologyPolicy", spec.get("numaTopologyPolicy"), NUMAPolicy, ("", "None")),
        "numa_exclusive": exclusive == "Required" if exclusive else None,
        "strategy": word(f"{field}.numaAllocateStrategy", spec.get("numaAllocateStrategy"), NUMAStrategy),
    }


def _exclusive(field: str, text: str) -> dict[str, Any]:
    return {"exclusive": affinities.exclusivity(field, text)}


def _affinities(field: str, text: str) -> dict[str, Any]:
    return {"affinities": affinities.affinities(field, text)}


def _core_kind(field: str, text: str) -> dict[str, Any]:
    if text.strip() not in ("", *_KINDS):
        raise TranslationError(field, text, "use P, M or E")
    return {"core_kind": text.strip() or None}


def _cpu_policy(field: str, text: str) -> dict[str, Any]:
    return {"cpu_policy": word(field, text, CPUPolicy)}


def _aware(field: str, text: str) -> dict[str, Any]:
    return {"topology_aware": boolean(field, text or None)}


_LABELS: Final = {keys.QOS_CLASS: _qos, keys.PRIORITY_CLASS: _band}
_ANNOTATIONS: Final = {
    keys.RESOURCE_SPEC: _resource_spec,
    keys.NUMA_TOPOLOGY_SPEC: _numa_spec,
    keys.EXCLUSIVE: _exclusive,
    keys.CPU_AFFINITY: _affinities,
    keys.CORE_KIND: _core_kind,
    keys.CRANE_CPU_POLICY: _cpu_policy,
    keys.CRANE_AWARENESS: _aware,
}
