"""Whether node selectors, node affinity terms and tolerations match a node, as upstream does."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from corelane.kube.objects import Node, Taint
from corelane.kube.pod import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    Toleration,
)

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_LABEL: Final = re.compile(r"(([A-Za-z0-9][A-Za-z0-9_.-]{0,61})?[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def matches_required_affinity(pod: Pod, node: Node) -> bool:
    """Return whether the pod's node selector and required node affinity match the node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    return not affinity or affinity.required is None or selects(affinity.required, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    """Return whether one of the terms matches."""
    return any(term_matches(term, node) for term in selector.node_selector_terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether all of the term's requirements match; an empty or invalid term matches no node."""
    return labels_match(term, node.metadata.labels, node.metadata.name)


def labels_match(term: NodeSelectorTerm, labels: Mapping[str, str], name: str = "") -> bool:
    """As `term_matches`, for labels; without a name, the term's fields are not looked at."""
    if not term_is_valid(term):
        return False
    if not all(rule_matches(rule, labels) for rule in term.match_expressions):
        return False
    return not name or all(rule_matches(rule, {"metadata.name": name}) for rule in term.match_fields)


@lru_cache(65_536)
def term_is_valid(term: NodeSelectorTerm) -> bool:
    """Return whether a term can match: it has rules, and all of them are valid."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(map(is_valid, term.match_expressions)) and all(
        rule.operator in {"In", "NotIn"} and len(rule.values) == 1 for rule in term.match_fields
    )


def is_valid(rule: NodeSelectorRequirement) -> bool:
    """Return whether labels can be held to the rule: upstream's `labels.NewRequirement`.

    Values must be such as labels can have, those of Gt and Lt integers of 64 bits.
    """
    prefix, slash, name = rule.key.rpartition("/")
    if not name or not _LABEL.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        return False
    if not all(map(_LABEL.fullmatch, rule.values)):
        return False
    match rule.operator:
        case "In" | "NotIn":
            return bool(rule.values)
        case "Exists" | "DoesNotExist":
            return not rule.values
        case "Gt" | "Lt":
            return len(rule.values) == 1 and _number(rule.values[0]) is not None
    return False


def rule_matches(rule: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether a valid rule holds for labels, or for fields."""
    value = labels.get(rule.key)
    match rule.operator:
        case "In":
            return value in rule.values if value is not None else False
        case "NotIn":
            return value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, bound = _number(value or ""), _number(rule.values[0])
    if number is None or bound is None:
        return False
    return number > bound if rule.operator == "Gt" else number < bound


def _number(text: str) -> int | None:
    """Go's `strconv.ParseInt` with 64 bits; None where it fails."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def named_nodes(selector: NodeSelector | None) -> frozenset[str] | None:
    """Return the only nodes that can match, where every term names some; None where it does not follow."""
    names: set[str] = set()
    if selector is None or not selector.node_selector_terms:
        return None
    for term in selector.node_selector_terms:
        of_term = [
            set(rule.values)
            for rule in term.match_fields
            if rule.key == "metadata.name" and rule.operator == "In"
        ]
        if not of_term:
            return None
        names |= set.intersection(*of_term)
    return frozenset(names)


def untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps the pod off the node."""
    tolerations = pod.spec.tolerations
    repelling = (taint for taint in taints if taint.effect in _REPELLING)
    return next((taint for taint in repelling if not tolerated(taint, tolerations)), None)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether a toleration matches the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Upstream's `ToleratesTaint`: an empty effect or key (with Exists) matches all."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value
