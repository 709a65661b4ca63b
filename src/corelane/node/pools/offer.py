"""What a node offers whose CPUs count several times (Koordinator's amplification), and who fits in."""

from corelane.node import amplification
from corelane.node.decision import Refusal
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import pod_class
from corelane.reasons import Code
from corelane.workload import PodRequest

__all__ = ["check"]


def check(state: NodeState, request: PodRequest) -> None:
    """Raises Refusal, with upstream's text, where a pod does not fit; one that binds counts as amplified."""
    ratio = state.config.pools.amplification
    taken = amplification.requested(state.requested, len(state.bound), ratio)
    binds = pod_class(request, state.config.pools).bound
    if amplification.lacks(state.allocatable, taken, request.cpu_request, ratio, binds=binds):
        counts = float(ratio) if binds else 0.0
        raise Refusal(Code.OUT_OF_AMPLIFIED_CPU, request.cpu_request, taken, state.allocatable, counts)
