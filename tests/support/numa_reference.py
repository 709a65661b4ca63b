"""The topology manager's merge as upstream has it, a fold over the cross product of all hints; the judge."""

import itertools

from corelane.placement import hints
from corelane.placement.hints import Hint
from corelane.placement.topologymanager import NUMAAffinity


def fold(lists, nodes, policy, distances):
    """Upstream's merge, step by step."""
    lists = [[Hint(None, True)] if one is None else list(one) or [Hint(None, False)] for one in lists]
    if policy == "single-numa-node":
        lists = [
            [h for h in one if h.preferred and (h.nodes is None or h.nodes.bit_count() == 1)] for one in lists
        ]
        distances = None
    narrowest = [min((h.nodes.bit_count() for h in one if h.nodes is not None), default=0) for one in lists]
    wanted = max(narrowest, default=0)

    def fitter(current, candidate):
        key = lambda mask: (  # noqa: E731
            mask.bit_count(),
            hints.distance(mask, distances) if distances is not None else 0,
            mask,
        )
        return candidate if key(candidate.nodes) < key(current.nodes) else current

    best = None
    for chosen in itertools.product(*lists):
        mask, masks = nodes, {h.nodes for h in chosen if h.nodes is not None}
        for one in masks:
            mask &= one
        candidate = Hint(mask, all(h.preferred for h in chosen) and len(masks) <= 1)
        if not mask:
            continue
        if best is None:
            best = candidate
        elif best.preferred != candidate.preferred:
            best = candidate if candidate.preferred else best
        elif best.preferred:
            best = fitter(best, candidate)
        else:
            now, new = best.nodes.bit_count(), mask.bit_count()
            if now > wanted:
                best = fitter(best, candidate)
            elif now == wanted:
                best = fitter(best, candidate) if new == wanted else best
            elif new == wanted:
                best = candidate
            elif new < wanted:
                best = candidate if new > now else fitter(best, candidate) if new == now else best
    best = best or Hint(nodes, False)
    if policy == "single-numa-node" and best.nodes == nodes:
        return NUMAAffinity(None, best.preferred, best.preferred)
    return NUMAAffinity(best.nodes, best.preferred, best.preferred or policy == "best-effort")
