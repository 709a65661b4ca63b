"""Would a kubelet start with this state file, on this machine and under these settings? If not, why.

Upstream: `validateState` in `policy_static.go` of cpumanager, and the check of the policy's name in
`state_checkpoint.go` (v1.36). Upstream exits at the first fault; all are named here, in its order and words.
"""

from collections.abc import Iterator

from corelane.cpuset import CPUSet, format_list
from corelane.machine.model import Machine
from corelane.node.config import NodeConfig, reserve
from corelane.node.invariants import Problem
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import usable_topology

__all__ = ["start_problems"]


def start_problems(checkpoint: Checkpoint, machine: Machine, config: NodeConfig) -> list[Problem]:
    """What keeps a kubelet with these settings from starting with this file; nothing when it starts.

    The first problem's text is the error with which the kubelet exits. Overlaps between containers are not
    among them, as upstream does not look for these. Raises NodeConfigError when no CPU can be used.
    """
    if checkpoint.policy != config.policy:
        text = (
            f'configured policy "{config.policy}" differs from state checkpoint policy "{checkpoint.policy}"'
        )
        return [Problem("policy", text)]
    if config.policy == "none":
        return []
    topology = usable_topology(machine)
    if not checkpoint.default:
        return _without_pool(checkpoint)
    reserved = reserve(config, topology)
    strict = config.options.strict_cpu_reservation
    return [
        *_reservation(checkpoint.default, reserved, strict),
        *_overlaps(checkpoint),
        *_total(checkpoint, topology.all & ~reserved if strict else topology.all),
    ]


def _without_pool(checkpoint: Checkpoint) -> list[Problem]:
    """An empty pool is that of a new node, unless containers have CPUs."""
    return [Problem("pool", "default cpuset cannot be empty")] if checkpoint.entries else []


def _reservation(default: CPUSet, reserved: int, strict: bool) -> Iterator[Problem]:
    inside = default.mask & reserved
    wrong = inside if strict else reserved & ~inside
    if wrong:
        which, named = ("some of strictly", inside) if strict else ("not all", reserved)
        text = f'{which} reserved cpus: "{format_list(named)}" are present in defaultCpuSet: "{default}"'
        yield Problem("reserved", text, cpus=CPUSet.from_mask(wrong))


def _overlaps(checkpoint: Checkpoint) -> Iterator[Problem]:
    default = checkpoint.default
    for uid, containers in sorted(checkpoint.entries.items()):
        for container, cpus in sorted(containers.items()):
            if cpus & default:
                text = (
                    f'pod: {uid}, container: {container} cpuset: "{cpus}" '
                    f'overlaps with default cpuset "{default}"'
                )
                yield Problem("overlap", text, uid, container, cpus & default)


def _total(checkpoint: Checkpoint, expected: int) -> Iterator[Problem]:
    """The pool and all assignments together must be every CPU, less those strictly reserved."""
    owned = [cpus for containers in checkpoint.entries.values() for cpus in containers.values()]
    total = checkpoint.default.mask
    for cpus in (*owned, *checkpoint.pods.values()):
        total |= cpus.mask
    if total != expected:
        text = (
            f'current set of available CPUs "{format_list(expected)}" '
            f'doesn\'t match with CPUs in state "{format_list(total)}"'
        )
        yield Problem("total", text, cpus=CPUSet.from_mask(total ^ expected))
