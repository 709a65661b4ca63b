"""The kubelet's static policy for one container: its NUMA affinity, the SMT check, and the CPUs.

Upstream: `policy_static.go` of cpumanager and `scope_*.go` of topologymanager (v1.36). Everything works on
masks: `available` are CPUs that may become exclusive, `reusable` those of earlier init containers.
"""

from corelane.node.config import pick
from corelane.node.ledger import NodeState
from corelane.node.managers import distances
from corelane.placement import hints, topologymanager
from corelane.placement.families import Family
from corelane.placement.topologymanager import NUMAAffinity
from corelane.reasons import Code, Refusal
from corelane.workload import PodRequest, peak


def pod_cpus(request: PodRequest) -> int:
    """The exclusive CPUs that a pod needs at once, by which a pod-scope topology manager judges it."""
    return peak((one.kind, request.exclusive_cpus(one)) for one in request.containers)


def affinity(state: NodeState, available: int, reusable: int, n: int) -> NUMAAffinity:
    """The NUMA nodes for n CPUs, as the topology manager's policy merges and judges the hints for them.

    Raises Refusal when the policy does not admit.
    """
    options = state.config.numa
    if options.policy == "none" or not n:
        return NUMAAffinity(None, True, True)
    hint = hints.best_cpu_hint(
        state.topology,
        available,
        reusable,
        n,
        by_socket=state.config.options.align_by_socket,
        distances=distances(state) if options.prefer_closest_numa_nodes else None,
    )
    if options.policy == "single-numa-node" and not topologymanager.is_single(hint):
        hint = hints.Hint(None, False)
    found = topologymanager.judge(hint, state.numa_nodes, options.policy)
    if not found.admit:
        raise Refusal(Code.NOT_ALIGNED)
    return found


def cpu_hints(state: NodeState, available: int, reusable: int, n: int) -> Family | None:
    """What the CPU manager says of n CPUs beside other providers; None when it does not care."""
    if not n:
        return None
    by_socket = state.config.options.align_by_socket
    return hints.cpu_family(state.topology, available, reusable, n, state.numa_nodes, by_socket=by_socket)


def check_smt(state: NodeState, available: int, n: int) -> None:
    """The check of full-pcpus-only, which comes before all others. Raises Refusal."""
    if not state.config.options.full_pcpus_only:
        return
    threads = state.topology.cpus_per_core
    if n % threads:
        raise Refusal(Code.SMT_NOT_MULTIPLE, n, threads)
    whole = available & ~state.topology.whole_cores(state.reserved.mask)
    if n > whole.bit_count():
        raise Refusal(Code.SMT_NOT_ENOUGH_CORES, whole.bit_count(), n, threads)


def near(state: NodeState, nodes: int) -> int:
    """The CPUs of these NUMA nodes (a mask of ids); with align-by-socket, of all sockets that they touch."""
    topology = state.topology
    cpus = sum(mask for node, mask in zip(topology.numa_ids, topology.numa, strict=True) if nodes >> node & 1)
    if state.config.options.align_by_socket:
        return sum(socket for socket in topology.sockets if socket & cpus)
    return cpus


def allocate(state: NodeState, pool: int, n: int, nodes: int | None) -> int:
    """N CPUs of the pool: as many as there are near the nodes, the rest from anywhere. Raises Refusal."""
    taken = 0
    try:
        if nodes is not None:
            aligned = pool & near(state, nodes)
            count = min(n, aligned.bit_count())
            taken = pick(state.config, state.topology, aligned, count, hinted=nodes.bit_count())
        missing = n - taken.bit_count()
        return taken | pick(state.config, state.topology, pool & ~taken, missing) if missing else taken
    except ValueError as error:
        raise Refusal(Code.ALLOCATION_FAILED, str(error)) from None
