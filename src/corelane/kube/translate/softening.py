"""Pods with one of their requirements about CPUs as a preference, for asking what would help."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from corelane.kube import keys
from corelane.kube.pod import Pod
from corelane.kube.translate.fields import TranslationError, annotation, json_list, json_object
from corelane.kube.translate.placement_annotations import PREFERRED, REQUIRED

_STRICT: Final = ("Restricted", "SingleNUMANode")


def softened(pod: Pod) -> Iterator[tuple[str, str, Pod]]:
    """Yield the annotation, the requirement in it, and the pod with it as a preference.

    Nothing for an annotation that is not valid.
    """
    for key, soften in _SOFTENERS.items():
        if key not in pod.metadata.annotations:
            continue
        try:
            changes = list(soften(annotation(key), pod.metadata.annotations[key]))
        except TranslationError:
            continue
        for what, text in changes:
            yield key, what, _with(pod, key, text)


def _with(pod: Pod, key: str, text: str) -> Pod:
    annotations = {**pod.metadata.annotations, key: text}
    if not text:
        del annotations[key]
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def _resource_spec(path: str, text: str) -> Iterator[tuple[str, str]]:
    spec = dict(json_object(path, text))
    if required := spec.pop(REQUIRED, None):
        yield f"{REQUIRED} {required}", _json({**spec, PREFERRED: required})


def _numa_spec(path: str, text: str) -> Iterator[tuple[str, str]]:
    spec = dict(json_object(path, text))
    policy = spec.get("numaTopologyPolicy")
    if policy in _STRICT:
        yield f"numaTopologyPolicy {policy}", _json({**spec, "numaTopologyPolicy": "BestEffort"})
    if spec.get("singleNUMANodeExclusive") == "Required":
        yield "singleNUMANodeExclusive", _json({**spec, "singleNUMANodeExclusive": "Preferred"})


def _exclusive(path: str, text: str) -> Iterator[tuple[str, str]]:
    spec = dict(json_object(path, text))
    if spec.get("required"):
        yield f"level {spec.get('level')}", _json({**spec, "required": False})


def _affinity(path: str, text: str) -> Iterator[tuple[str, str]]:
    terms = json_list(path, text)
    for i, term in enumerate(terms):
        if isinstance(term, Mapping) and term.get("required"):
            changed = [*terms[:i], {**term, "required": False}, *terms[i + 1 :]]
            yield f"term {i}", _json(changed)


def _core_kind(_path: str, text: str) -> Iterator[tuple[str, str]]:
    if text.strip():
        yield f"core kind {text.strip()}", ""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SOFTENERS: Final[Mapping[str, Callable[[str, str], Iterator[tuple[str, str]]]]] = {
    keys.RESOURCE_SPEC: _resource_spec,
    keys.NUMA_TOPOLOGY_SPEC: _numa_spec,
    keys.EXCLUSIVE: _exclusive,
    keys.CPU_AFFINITY: _affinity,
    keys.CORE_KIND: _core_kind,
}
