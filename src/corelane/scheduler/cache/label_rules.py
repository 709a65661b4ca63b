"""Label selectors as hashable rules, and the sets of pods that affinity terms and constraints mean."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from corelane.kube.selectors import LabelSelector
from corelane.workload.selectors import LabelRequirement, Operator

Rules: TypeAlias = tuple[LabelRequirement, ...]
"""All must hold; without any, everything matches."""


def rules_of(selector: LabelSelector | None, extra: Iterable[LabelRequirement] = ()) -> Rules | None:
    """Return a selector's rules, and `extra` ones; None for an absent selector, which matches nothing.

    Raises ValueError for an unknown operator.
    """
    if selector is None:
        return None
    compiled = selector.compiled()
    equal = (LabelRequirement(key, Operator.IN, (value,)) for key, value in compiled.labels.items())
    rules = {*equal, *compiled.expressions, *extra}
    return tuple(sorted(rules, key=lambda rule: (rule.key, rule.operator, rule.values)))


def holds(rules: Rules | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels match; None matches nothing."""
    return rules is not None and all(rule.holds(labels) for rule in rules)


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods with matching labels in the named namespaces, and in those whose labels match."""

    rules: Rules | None
    namespaces: frozenset[str] = frozenset()
    namespace_rules: Rules | None = None

    @property
    def everywhere(self) -> bool:
        """Whether pods of all namespaces can match."""
        return self.namespace_rules == ()

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether a pod is meant; labels of an unknown namespace are none."""
        within = namespace in self.namespaces or holds(self.namespace_rules, namespace_labels)
        return within and holds(self.rules, labels)

    @property
    def pair(self) -> tuple[str, str] | None:
        """A label and value that every pod of the set has, if the rules name one."""
        for rule in self.rules or ():
            if rule.operator is Operator.IN and len(rule.values) == 1:
                return rule.key, rule.values[0]
        return None

    @property
    def keys(self) -> frozenset[str]:
        """Label keys that the rules look at."""
        return frozenset(rule.key for rule in self.rules or ())


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Term:
    """A pod affinity term: pods, and the label key of the domains in which they count.

    Equal terms are one object; `Term.of` makes them.
    """

    pods: PodSet
    topology_key: str

    @classmethod
    def of(cls, pods: PodSet, topology_key: str) -> "Term":
        term = _TERMS.get((pods, topology_key))
        if term is None:
            term = _TERMS[pods, topology_key] = cls(pods, topology_key)
        return term


_TERMS: Final[WeakValueDictionary[tuple[PodSet, str], Term]] = WeakValueDictionary()


@lru_cache(4096)
def in_namespace(namespace: str, rules: Rules | None) -> PodSet:
    """Return the pods of one namespace whose labels match."""
    return PodSet(rules, frozenset({namespace}))
