"""`corelane.io/exclusive` and `corelane.io/cpu-affinity`: beside whom a pod's CPUs may lie, and whom not."""

from collections.abc import Mapping
from typing import Any, Final

from corelane.kube.translate.annotations import boolean, chosen, items, listed, member, tree
from corelane.kube.translate.errors import TranslationError
from corelane.workload import Exclusivity, LabelRequirement, Operator, PodCPUAffinity, Selector, TopologyLevel

__all__ = ["affinities", "exclusivity"]

_EXCLUSIVE: Final = ("level", "required")
_TERM: Final = ("avoid", "prefer", "level", "required")
_SELECTOR: Final = ("matchLabels", "matchExpressions")
_RULE: Final = ("key", "operator", "values")
_LONGEST: Final = 4096
"""Characters of all terms: neighbours must know them, so nodes publish them, and their room is limited."""


def exclusivity(field: str, text: str) -> Exclusivity | None:
    """What the annotation says, None for nothing. Raises TranslationError."""
    spec = tree(field, text, _EXCLUSIVE)
    if not spec:
        return None
    return Exclusivity(chosen(f"{field}.level", spec.get("level"), TopologyLevel), _required(field, spec))


def affinities(field: str, text: str) -> tuple[PodCPUAffinity, ...]:
    """All terms. Raises TranslationError."""
    if len(text) > _LONGEST:
        why = f"its {len(text)} characters are more than {_LONGEST}: name fewer terms, or label pods alike"
        raise TranslationError(field, text, why)
    return tuple(_affinity(where, one) for where, one in items(field, listed(field, text)))


def _required(field: str, spec: Mapping[str, Any]) -> bool:
    return bool(boolean(f"{field}.required", spec.get("required")))


def _affinity(field: str, value: Any) -> PodCPUAffinity:
    term = member(field, value, _TERM)
    said = [name for name in ("avoid", "prefer") if term.get(name) is not None]
    if len(said) != 1:
        raise TranslationError(field, dict(term), 'must have either "avoid" or "prefer", a label selector')
    others = _selector(f"{field}.{said[0]}", term[said[0]])
    level = chosen(f"{field}.level", term.get("level"), TopologyLevel)
    return PodCPUAffinity(said[0] == "avoid", level, others, _required(field, term))


def _selector(field: str, value: Any) -> Selector:
    """Kubernetes' LabelSelector; what would silently select other pods than meant is refused instead."""
    selector = member(field, value, _SELECTOR)
    if unknown := sorted(selector.keys() - set(_SELECTOR)):
        raise TranslationError(field, value, f"{unknown[0]} is unknown: use {' or '.join(_SELECTOR)}")
    labels = member(f"{field}.matchLabels", selector.get("matchLabels"))
    if not all(isinstance(one, str) for one in labels.values()):
        raise TranslationError(f"{field}.matchLabels", dict(labels), "values must be strings")
    rules = items(f"{field}.matchExpressions", selector.get("matchExpressions"))
    return Selector(labels, tuple(_requirement(where, one) for where, one in rules))


def _requirement(field: str, value: Any) -> LabelRequirement:
    rule = member(field, value, _RULE)
    key = rule.get("key")
    if not isinstance(key, str) or not key:
        raise TranslationError(f"{field}.key", key, "must be the key of a label")
    operator = chosen(f"{field}.operator", rule.get("operator"), Operator)
    return LabelRequirement(key, operator, _values(f"{field}.values", rule.get("values"), operator))


def _values(field: str, value: Any, operator: Operator) -> tuple[str, ...]:
    values = tuple(one for _, one in items(field, value))
    if not all(isinstance(one, str) for one in values):
        raise TranslationError(field, value, "must be strings")
    if operator.compares and not values:
        raise TranslationError(field, value, f"must have at least one for {operator}")
    if values and not operator.compares:
        raise TranslationError(field, value, f"must be empty for {operator}")
    return values
