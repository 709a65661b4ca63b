"""What a node offers whose CPUs count several times (Koordinator's amplification), and who fits in."""

from corelane.node import amplification
from corelane.node.errors import Refusal
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import standing
from corelane.workload import Ask

__all__ = ["check"]


def check(state: NodeState, ask: Ask) -> None:
    """Raises Refusal, with upstream's text, where a pod does not fit; one that binds counts as amplified."""
    ratio = state.config.pools.amplification
    taken = amplification.requested(state.requested, len(state.bound), ratio)
    binds = standing(ask, state.config.pools).bound
    if lacking := amplification.lacks(state.allocatable, taken, ask.cpu_request, ratio, binds=binds):
        counts = f", which counts {float(ratio):g} times as it binds" if binds else ""
        raise Refusal(
            "OutOfcpu",
            f"{lacking}: requested: {ask.cpu_request}{counts}, used: {taken}, capacity: {state.allocatable}",
        )
