"""CPU amplification: a node that offers more CPUs than it has, since each counts as several slower ones.

As Koordinator's scheduler: what a pod is bound to is real, so it counts for more of what is offered.
"""

from fractions import Fraction


def amplify(amount: int, ratio: Fraction) -> int:
    """The amount, rounded up, that so much comes to; a ratio up to 1 changes nothing."""
    return -(-amount * ratio.numerator // ratio.denominator) if ratio > 1 else amount


def requested(milli: int, bound: int, ratio: Fraction) -> int:
    """MilliCPU that all pods of a node take of what it offers, when `bound` CPUs of theirs are in cpusets."""
    real = 1000 * bound
    if not 0 < real <= milli:
        return milli
    return milli - real + amplify(real, ratio)


def fits(offered: int, taken: int, request: int, ratio: Fraction, *, binds: bool) -> bool:
    """Whether a request fits; all in milliCPU, `offered` amplified, and the request if it binds CPUs."""
    return (amplify(request, ratio) if binds else request) <= offered - taken
