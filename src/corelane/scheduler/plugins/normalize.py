"""How plugins' scores are brought to 0 to 100, in whole numbers as upstream's `DefaultNormalizeScore`."""

import numpy as np

from corelane.scheduler.cache.columns import Scores
from corelane.scheduler.framework.plugin import BEST


def by_maximum(scores: Scores, *, reverse: bool = False) -> Scores:
    """Return each score's share of the highest; `reverse` makes the lowest the best."""
    highest = float(scores.max(initial=0.0))
    if highest == 0:
        return np.full(len(scores), BEST if reverse else 0.0)
    scaled = np.floor(BEST * scores / highest)
    return BEST - scaled if reverse else scaled


def by_range(scores: Scores) -> Scores:
    """Return where each score is between the lowest and the highest; 0 where all are equal."""
    lowest, highest = float(scores.min(initial=np.inf)), float(scores.max(initial=-np.inf))
    if highest <= lowest:
        return np.zeros(len(scores))
    return np.floor(BEST * ((scores - lowest) / (highest - lowest)))
