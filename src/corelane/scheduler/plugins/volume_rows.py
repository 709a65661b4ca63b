"""Which of many nodes can have a pod with claims, by its volumes; see `volume_matching` for one node."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane.kube.storage import PersistentVolumeClaim, TopologySelectorTerm
from corelane.reasons import Code
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.plugins.volume_matching import (
    ClaimOffers,
    ClaimsOfPod,
    NodeVolumes,
    find,
    selected_node,
    topologies,
)
from corelane.scheduler.plugins.volume_offers import reach_mask

Codes: TypeAlias = NDArray[np.int8]
BOUND: tuple[Code | None, ...] = (None, Code.VOLUME_NODE_MISMATCH, Code.VOLUME_MISSING)
"""What bound claims say of a node, by the numbers in `bound_codes`."""


def bound_codes(claims: ClaimsOfPod, offers: ClaimOffers, columns: Columns, rows: Rows) -> Codes:
    """Return for each row the number in `BOUND` of the first bound claim's fault."""
    codes = np.zeros(len(rows), np.int8)
    for claim in claims.bound:
        volume = offers.objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            codes[codes == 0] = BOUND.index(Code.VOLUME_MISSING)
            break
        reached = reach_mask(volume, columns, rows)
        codes[(codes == 0) & ~reached] = BOUND.index(Code.VOLUME_NODE_MISMATCH)
    return codes


def available(claims: ClaimsOfPod, offers: ClaimOffers, cluster: NodeCache, rows: Rows) -> Mask:
    """Return on which rows every other claim gets a volume, or can have one made."""
    columns, mask, matching = cluster.columns, np.ones(len(rows), np.bool_), 0
    for claim in claims.delayed:
        selected = selected_node(claim, offers.objects)
        possible = _made(claim, offers, columns, rows)
        if selected is not None:
            node = cluster.get(selected)
            possible &= rows == (node.row if node else -1)
        else:
            matching += 1
            possible |= offers.of(claim).reached(columns, rows)
        mask &= possible
    if matching > 1:
        # The claims may compete for one volume.
        delayed = ClaimsOfPod(delayed=claims.delayed)
        for place in mask.nonzero()[0].tolist():
            node = cluster.by_row[rows[place]]
            alone = node is not None and node.node is not None
            mask[place] = alone and isinstance(find(delayed, node.node, offers), NodeVolumes)
    return mask


def _made(claim: PersistentVolumeClaim, offers: ClaimOffers, columns: Columns, rows: Rows) -> Mask:
    """Where a volume can be made for the claim."""
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
