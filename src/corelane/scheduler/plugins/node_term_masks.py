"""Node selectors and node affinity terms over many nodes at once."""

from collections.abc import Mapping

import numpy as np

from corelane.kube.node_terms import rule_matches, term_is_valid
from corelane.kube.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from corelane.scheduler.cache.columns import Columns, Mask, Rows


def labels_mask(labels: Mapping[str, str], columns: Columns, rows: Rows) -> Mask:
    """Return which nodes have all these labels."""
    mask = np.ones(len(rows), np.bool_)
    for key, value in labels.items():
        mask &= columns.label(key)[rows] == columns.label_value(key, value)
    return mask


def selector_mask(selector: NodeSelector, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes one of the terms matches."""
    mask = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms:
        mask |= term_mask(term, columns, rows)
    return mask


def labels_selector_mask(selector: NodeSelector, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes one of the terms matches by labels; fields are not looked at."""
    mask = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms:
        mask |= _labels_mask(term, columns, rows)
    return mask


def _labels_mask(term: NodeSelectorTerm, columns: Columns, rows: Rows) -> Mask:
    if not term_is_valid(term):
        return np.zeros(len(rows), np.bool_)
    mask = np.ones(len(rows), np.bool_)
    for rule in term.match_expressions:
        mask &= _by_value(rule, columns)[columns.label(rule.key)[rows]]
    return mask


def term_mask(term: NodeSelectorTerm, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes a term matches: none if it is empty or invalid."""
    mask = _labels_mask(term, columns, rows)
    for rule in term.match_fields:
        mask &= _by_name(rule, columns, rows)
    return mask


def _by_value(rule: NodeSelectorRequirement, columns: Columns) -> Mask:
    """Whether the rule holds by the id of the label's value; the last one is of nodes without the label."""
    values = columns.label_values(rule.key)
    table = np.full(len(values) + 1, rule.operator in {"NotIn", "Exists"})
    if rule.operator in {"In", "NotIn"}:
        for value in rule.values:
            if value in values:
                table[values[value]] = rule.operator == "In"
    elif rule.operator in {"Gt", "Lt"}:
        for value, number in values.items():
            table[number] = rule_matches(rule, {rule.key: value})
    table[-1] = rule_matches(rule, {})
    return table


def _by_name(rule: NodeSelectorRequirement, columns: Columns, rows: Rows) -> Mask:
    names = columns.names
    holds = (rule_matches(rule, {"metadata.name": names[row]}) for row in rows.tolist())
    return np.fromiter(holds, np.bool_, len(rows))
