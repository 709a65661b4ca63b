"""Which of many nodes can have a pod with claims, by its volumes; see `volume_matching` for one node."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane.kube.csi_migration import migrated_plugins, plugin_of, translated
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm
from corelane.reasons import Code
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.objects import ClusterObjects
from corelane.scheduler.plugins.volume_matching import (
    ClaimOffers,
    ClaimsOfPod,
    find,
    selected_node,
    topologies,
)
from corelane.scheduler.plugins.volume_offers import reach_mask

Codes: TypeAlias = NDArray[np.int8]
BOUND: tuple[Code | None, ...] = (None, Code.VOLUME_NODE_MISMATCH, Code.VOLUME_MISSING)
"""What bound claims say of a node, by the numbers in `bound_codes`."""
DELAYED: tuple[Code | None, ...] = (None, Code.VOLUME_NOT_AVAILABLE, Code.STORAGE_INSUFFICIENT)
"""What claims that wait for a node say of it, by the numbers in `delayed_codes`."""


def bound_codes(claims: ClaimsOfPod, offers: ClaimOffers, columns: Columns, rows: Rows) -> Codes:
    """Return for each row the number in `BOUND` of the first bound claim's fault."""
    codes = np.zeros(len(rows), np.int8)
    for claim in claims.bound:
        volume = offers.objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            codes[codes == 0] = BOUND.index(Code.VOLUME_MISSING)
            break
        reached = _reached(volume, offers.objects, columns, rows)
        codes[(codes == 0) & ~reached] = BOUND.index(Code.VOLUME_NODE_MISMATCH)
    return codes


def _reached(volume: PersistentVolume, objects: ClusterObjects, columns: Columns, rows: Rows) -> Mask:
    """Return which rows a bound volume reaches, on some of which a CSI driver may have taken it over."""
    reached, plugin, nodes = reach_mask(volume, columns, rows), plugin_of(volume.spec), objects.csi_nodes
    if not plugin or not nodes:
        return reached
    migrated = {name for name, node in nodes.items() if plugin in migrated_plugins(node)}
    names = columns.names
    there = np.fromiter((names[row] in migrated for row in rows.tolist()), np.bool_, len(rows))
    found: Mask = np.where(there, reach_mask(translated(volume), columns, rows), reached)
    return found


def delayed_codes(claims: ClaimsOfPod, offers: ClaimOffers, cluster: NodeCache, rows: Rows) -> Codes:
    """Return for each row the number in `DELAYED` of why a claim gets no volume, nor can have one made."""
    columns, objects, codes = cluster.columns, offers.objects, np.zeros(len(rows), np.int8)
    selected = [(claim, name) for claim in claims.delayed if (name := selected_node(claim, objects))]
    matching = [claim for claim in claims.delayed if not selected_node(claim, objects)]
    for _, name in selected:
        node = cluster.get(name)
        codes[rows != (node.row if node else -1)] = DELAYED.index(Code.VOLUME_NOT_AVAILABLE)
    for claim, _ in selected:
        _note(codes, *_made(claim, offers, columns, rows))
    if len(matching) == 1:
        offered = offers.of(matching[0]).reached(columns, rows)
        able, stored = _made(matching[0], offers, columns, rows)
        _note(codes, able | offered, stored | offered)
    elif matching:
        _note_competing(codes, claims, matching, offers, cluster, rows)
    return codes


def _note(codes: Codes, able: Mask, stored: Mask) -> None:
    codes[(codes == 0) & ~able] = DELAYED.index(Code.VOLUME_NOT_AVAILABLE)
    codes[(codes == 0) & ~stored] = DELAYED.index(Code.STORAGE_INSUFFICIENT)


def _note_competing(
    codes: Codes,
    claims: ClaimsOfPod,
    matching: list[PersistentVolumeClaim],
    offers: ClaimOffers,
    cluster: NodeCache,
    rows: Rows,
) -> None:
    """Ask the nodes one by one: the claims may compete for one volume. Nodes that have none are left out."""
    if not any(map(offers.storage, matching)):
        for claim in matching:
            able, _ = _made(claim, offers, cluster.columns, rows)
            _note(codes, able | offers.of(claim).reached(cluster.columns, rows), np.ones(len(rows), np.bool_))
    delayed = ClaimsOfPod(delayed=claims.delayed)
    for place in (codes == 0).nonzero()[0].tolist():
        node = cluster.by_row[rows[place]]
        if node is None or node.node is None:
            codes[place] = DELAYED.index(Code.VOLUME_NOT_AVAILABLE)
        elif isinstance(found := find(delayed, node.node, offers), tuple):
            codes[place] = DELAYED.index(found[0].code)


def _made(
    claim: PersistentVolumeClaim, offers: ClaimOffers, columns: Columns, rows: Rows
) -> tuple[Mask, Mask]:
    """Where a volume can be made for the claim, and where there is storage for it."""
    storage = offers.storage(claim)
    stored = np.ones(len(rows), np.bool_) if storage is None else storage.reached(columns, rows)
    return _possible(claim, offers, columns, rows), stored


def _possible(claim: PersistentVolumeClaim, offers: ClaimOffers, columns: Columns, rows: Rows) -> Mask:
    """Where the class has a provisioner, and its allowed topologies hold."""
    terms = topologies(claim, offers.objects)
    if not terms:
        return np.full(len(rows), terms is not None)
    mask = np.zeros(len(rows), np.bool_)
    for term in terms:
        mask |= _allowed(term, columns, rows)
    return mask


def _allowed(term: TopologySelectorTerm, columns: Columns, rows: Rows) -> Mask:
    mask = np.full(len(rows), bool(term.match_label_expressions))
    for rule in term.match_label_expressions:
        values = [columns.label_value(rule.key, value) for value in rule.values]
        mask &= np.isin(columns.label(rule.key)[rows], values)
    return mask
