"""One node's ledger: the owner of each CPU, admission of pods, and the CPUs left in the pools.

`admit(state, request) -> (state, decision)` is the one function that agent, scheduler and simulator all call.
"""

from corelane.node import codec
from corelane.node.admission import admit, why_shared
from corelane.node.config import NodeConfig, PoolOptions, default_reserved_count
from corelane.node.entries import Entry, Origin, Phase, Sharing
from corelane.node.invariants import Problem, validate
from corelane.node.ledger import Decision, LedgerError, NodeState, mark, new, release, started
from corelane.node.manager_options import MemoryOptions, NodeConfigError, StaticOptions, TopologyOptions
from corelane.node.pools.zones import best_effort_cpus, pools_by_zone
from corelane.node.recovery.rebasing import rebase
from corelane.reasons import Reason, Refusal

__all__ = [
    "Decision",
    "Entry",
    "LedgerError",
    "MemoryOptions",
    "NodeConfig",
    "NodeConfigError",
    "NodeState",
    "Origin",
    "Phase",
    "PoolOptions",
    "Problem",
    "Reason",
    "Refusal",
    "Sharing",
    "StaticOptions",
    "TopologyOptions",
    "admit",
    "best_effort_cpus",
    "codec",
    "default_reserved_count",
    "mark",
    "new",
    "pools_by_zone",
    "rebase",
    "release",
    "started",
    "validate",
    "why_shared",
]
