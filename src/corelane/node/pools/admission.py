"""Admission under policy `pools`: the pod's class, then its CPUs or its zone, then what is left to others."""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.decision import Decision
from corelane.node.entries import Entry, Key, Origin, Sharing
from corelane.node.errors import Refusal
from corelane.node.ledger import NodeState
from corelane.node.policies import (
    BIND_CONFLICT,
    NOT_MULTIPLE,
    NUMA_CONFLICT,
    Conflict,
    NodePolicies,
    Policies,
    resolve,
)
from corelane.node.pools.binding import Bound, bind
from corelane.node.pools.classes import Standing, standing
from corelane.node.pools.holding import Held, hold
from corelane.node.pools.tenants import Tenant
from corelane.placement.reasons import Reason
from corelane.workload import Ask, ContainerAsk, NUMAPolicy

__all__ = ["admit", "why_shared"]

_CONFLICTS: Final = {
    BIND_CONFLICT: "CPUPolicyConflict",
    NUMA_CONFLICT: "NUMAPolicyConflict",
    NOT_MULTIPLE: "SMTAlignmentError",
}


def why_shared(state: NodeState, ask: Ask, container: ContainerAsk) -> str:
    """Why a container is not bound to CPUs, in words."""
    try:
        decided = standing(ask, state.config.pools)
    except Refusal as refusal:
        return str(refusal)
    if decided.own and container.name not in decided.own:
        return f"{container.cpu_request}m is no whole number of CPUs: shares the pool"
    return decided.why


def admit(state: NodeState, ask: Ask) -> tuple[NodeState, Decision]:
    """Give a pod that is not in the ledger its CPUs or its pool. Raises Refusal, with the reason in words."""
    decided = standing(ask, state.config.pools)
    policies = _policies(state, ask, decided)
    if decided.bound:
        bound = bind(state, ask, decided, policies)
        held = Held(_zone_beside(state, bound, policies.numa))
    else:
        bound, held = Bound({}), hold(state, ask, decided, policies.numa)
    after = _after(state, ask, decided, bound, held)
    _check_what_is_left(state, after)
    return after, _decision(after, ask, decided, policies, bound, held)


def _policies(state: NodeState, ask: Ask, decided: Standing) -> Policies:
    options = state.config.pools
    here = NodePolicies(options.node_bind, options.strategy, options.numa)
    threads = state.topology.cpus_per_core
    found = resolve(ask.wishes, here, options.bind, cpus=decided.cpus(ask), threads=threads)
    if isinstance(found, Conflict):
        raise Refusal(_CONFLICTS[found.reason], str(found))
    return found


def _zone_beside(state: NodeState, bound: Bound, numa: NUMAPolicy) -> CPUSet | None:
    """Where siblings without own CPUs stay on a node that aligns: on the NUMA nodes of those with."""
    if numa not in (NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE):
        return None
    cpus = bound.all
    pool = state.shared_pool.mask & ~cpus
    ids = zip(state.topology.numa_ids, state.topology.numa, strict=True)
    zone = CPUSet(node for node, mask in ids if mask & cpus and mask & pool)
    return zone or None


def _check_what_is_left(before: NodeState, after: NodeState) -> None:
    """Refuse what would take the shared pool's last CPU, or leave best effort with fewer than its minimum."""
    if after.bound == before.bound:
        return
    free = after.topology.all & ~after.exclusive.mask
    if not free & ~after.config.closed(after.machine):
        raise Refusal(
            "SharedPoolExhausted",
            f"the shared pool {before.shared_pool} would be used up: one CPU must remain for containers "
            "without CPUs of their own",
        )
    least, left = after.config.pools.be_minimum, len(after.best_effort_pool)
    if left < least and left < len(before.best_effort_pool):
        raise Refusal(
            "BestEffortExhausted",
            f"best effort would be left with {left} CPUs ({after.best_effort_pool}), but keeps at least "
            f"{least} on this node (be_minimum)",
        )


def _after(state: NodeState, ask: Ask, decided: Standing, bound: Bound, held: Held) -> NodeState:
    entries: dict[Key, Entry] = dict(state.entries)
    for container in ask.containers:
        entries[ask.uid, container.name] = _entry(state, ask, decided, container, bound, held)
    cpus = CPUSet.from_mask(bound.all)
    tenants = state.tenants
    if cpus or held.zone:
        tenants = MappingProxyType({**tenants, ask.uid: Tenant.of(ask, held.burst)})
    return replace(
        state,
        entries=MappingProxyType(entries),
        pods=MappingProxyType({**state.pods, ask.uid: ask.cpu_request}),
        tenants=tenants,
        exclusive=state.exclusive | cpus if decided.sharing.exclusive else state.exclusive,
        lent=state.lent | cpus if decided.sharing is Sharing.LENT else state.lent,
        bound=state.bound | cpus,
        requested=state.requested + ask.cpu_request,
        generation=state.generation + 1,
    )


def _entry(
    state: NodeState, ask: Ask, decided: Standing, container: ContainerAsk, bound: Bound, held: Held
) -> Entry:
    cpus = bound.cpus.get(container.name, 0)
    proposed = ask.proposal.get(container.name)
    pool = Sharing.POOL if decided.bound else decided.sharing
    return Entry(
        uid=ask.uid,
        container=container.name,
        pod=ask.key,
        cpus=CPUSet.from_mask(cpus),
        sharing=decided.sharing if cpus else pool,
        common=bool(cpus and decided.common),
        zone=None if cpus else held.zone,
        cls=decided.qos.value,
        kind=container.kind,
        origin=Origin.SCHEDULER if cpus and proposed and proposed.mask == cpus else Origin.CORELANE,
        allocator=state.config.pools.allocator if cpus else "",
        cpu_request=container.cpu_request,
    )


def _decision(
    after: NodeState, ask: Ask, decided: Standing, policies: Policies, bound: Bound, held: Held
) -> Decision:
    floats = [one for one in ask.containers if decided.own and one.name not in decided.own]
    why = [Reason("class", decided.why, one.name) for one in ask.containers if one not in floats]
    why += [Reason("shared", why_shared(after, ask, one), one.name) for one in floats]
    if decided.bound:
        why += [Reason("note", note, name) for note in policies.notes for name in bound.cpus]
    why += bound.reasons
    if held.why:
        why += [Reason("zone", held.why, one.name) for one in ask.containers]
    assigned = {name: CPUSet.from_mask(cpus) for name, cpus in bound.cpus.items()}
    return Decision(
        True,
        assignments=MappingProxyType(assigned),
        zone=held.zone,
        shared=after.shared_pool,
        repicked=bound.repicked or held.repicked,
        reasons=tuple(why),
    )
