"""The kubelet's own settings, as Koordinator's and others' agents publish them on a NodeResourceTopology."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from corelane.cpuset import CPUSet
from corelane.kube.keys import CPU_MANAGER_POLICY, CPU_MANAGER_POLICY_PROPOSED
from corelane.kube.node import NodeResourceTopology
from corelane.kube.translate.annotations import annotation, boolean, cpus, member, tree
from corelane.kube.translate.errors import TranslationError
from corelane.node.policies import NodePolicies
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy

__all__ = ["WORDS", "KubeletSettings", "dump", "read", "topology_policies"]

_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
_ALIGNED: Final = {
    "best-effort": NUMAPolicy.BEST_EFFORT,
    "restricted": NUMAPolicy.RESTRICTED,
    "single-numa-node": NUMAPolicy.SINGLE_NUMA_NODE,
}
WORDS: Final[Mapping[NUMAPolicy, str]] = {NUMAPolicy.NONE: "none"} | {
    policy: word for word, policy in _ALIGNED.items()
}
"""Koordinator's topology policies in the kubelet's words."""
_SCOPES: Final = {"container": "ContainerLevel", "pod": "PodLevel"}
_LEVELS: Final = {
    f"{numa}{level}": (policy, scope)
    for policy, numa in _ALIGNED.items()
    for scope, level in (*_SCOPES.items(), ("container", ""))
}
"""Words of `topologyPolicies`; the older ones do not tell the scope."""


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """A kubelet's CPU manager and topology manager."""

    policy: str = "none"
    """Of the CPU manager: `none` or `static`."""
    options: Mapping[str, str] = field(default_factory=lambda: _NO_OPTIONS)
    """`cpuManagerPolicyOptions`."""
    reserved: CPUSet = field(default_factory=CPUSet)
    topology_policy: str = "none"
    topology_scope: str = "container"

    @property
    def policies(self) -> NodePolicies:
        """What these settings say about all pods of the node, by the proposal's rules."""
        return NodePolicies(
            BindPolicy.FULL_PCPUS if self._has("full-pcpus-only") else None,
            NUMAStrategy.DISTRIBUTE_EVENLY if self._has("distribute-cpus-across-numa") else None,
            _ALIGNED.get(self.topology_policy),
        )

    def _has(self, option: str) -> bool:
        return self.policy == "static" and bool(boolean(option, self.options.get(option)))


def read(published: NodeResourceTopology) -> KubeletSettings:
    """What a NodeResourceTopology tells of its node's kubelet; all of it may be absent.

    The CPU manager is in Koordinator's annotation. The topology manager is in attributes (v1alpha2), else in
    `topologyPolicies`. Raises TranslationError.
    """
    key = _key(published.metadata.annotations)
    where = annotation(key)
    told = tree(where, published.metadata.annotations.get(key, ""), ("policy", "options", "reservedCPUs"))
    policy, scope = _topology_manager(published)
    return KubeletSettings(
        _policy(f"{where}.policy", told.get("policy")),
        _options(f"{where}.options", told.get("options")),
        cpus(f"{where}.reservedCPUs", told.get("reservedCPUs")),
        policy,
        scope,
    )


def _key(annotations: Mapping[str, str]) -> str:
    """Under which of its spellings the annotation is there."""
    spellings = (CPU_MANAGER_POLICY, *CPU_MANAGER_POLICY_PROPOSED)
    return next((key for key in spellings if annotations.get(key)), CPU_MANAGER_POLICY)


def _policy(where: str, value: Any) -> str:
    if value not in (None, "", "none", "static"):
        raise TranslationError(where, value, "use none or static")
    return value or "none"


def _options(where: str, value: Any) -> dict[str, str]:
    """Texts, as the kubelet has them; a JSON boolean is taken for its text."""
    options = {}
    for name, one in member(where, value).items():
        if not isinstance(one, str | bool):
            raise TranslationError(f"{where}.{name}", one, 'must be a string such as "true"')
        options[name] = str(one).lower() if isinstance(one, bool) else one
    for name in ("full-pcpus-only", "distribute-cpus-across-numa"):
        boolean(f"{where}.{name}", options.get(name))
    return options


def _topology_manager(published: NodeResourceTopology) -> tuple[str, str]:
    told = {one.name: one.value for one in published.attributes}
    if policy := told.get("topologyManagerPolicy"):
        return policy, told.get("topologyManagerScope") or "container"
    named = (_LEVELS[one] for one in published.topology_policies if one in _LEVELS)
    return next(named, ("none", "container"))


def topology_policies(policy: str, scope: str) -> list[str]:
    """The words of `topologyPolicies` for a topology manager's policy and scope, koordlet's first.

    Of the words for whole pods Koordinator's scheduler knows SingleNUMANodePodLevel alone, of the others the
    older ones. It takes the first that it knows; other readers take the first.
    """
    if policy not in _ALIGNED:
        return ["None"]
    word = f"{_ALIGNED[policy]}{_SCOPES[scope]}"
    older = scope == "pod" and _ALIGNED[policy] is not NUMAPolicy.SINGLE_NUMA_NODE
    return [word, _ALIGNED[policy].value] if older else [word]


def dump(settings: KubeletSettings) -> str:
    """The annotation's text, as koordlet writes it: empty parts are left out."""
    told: dict[str, Any] = {"policy": settings.policy}
    if settings.options:
        told["options"] = dict(sorted(settings.options.items()))
    if settings.reserved:
        told["reservedCPUs"] = str(settings.reserved)
    return msgspec.json.encode(told).decode()
