"""Who meets whom under policy pools, over random arrivals, ends, crashes and changes of the machine."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube.translate import ledger_annotation
from corelane.node.entries import Sharing
from corelane.node.ledger import admits_alike
from corelane.workload.request import ContainerKind
from support.node_asks import DUAL, LAPTOP, QUAD_NUMA, SINGLE
from support.pool_asks import options, requests

ISOLATING = replace(QUAD_NUMA, name="isolating", isolated=CPUSet.parse("4-5,20-21"))
BY_NAME = {machine.name: machine for machine in (LAPTOP, DUAL, QUAD_NUMA, SINGLE, ISOLATING)}
MACHINES = st.sampled_from(sorted(BY_NAME))


def pairs(state):
    """All pairs of containers that may live at the same time, by what they run on."""
    entries = list(state.entries.values())
    for i, one in enumerate(entries):
        for other in entries[i + 1 :]:
            init = ContainerKind.INIT in (one.kind, other.kind)
            if not (one.uid == other.uid and (init or (one.common and other.common))):
                yield one, other


class Pools(RuleBasedStateMachine):
    @initialize(machine=MACHINES, pools=options, reserved=st.sampled_from([None, None, 1, 2]))
    def start(self, machine, pools, reserved):
        machine = BY_NAME[machine]
        try:
            self.state = node.new(machine, node.NodeConfig("pools", reserved_count=reserved, pools=pools))
        except node.NodeConfigError:
            self.state = node.new(machine, node.NodeConfig("pools"))
        self.moved = False

    @rule(request=requests())
    def arrive(self, request):
        before, known = self.state, request.uid in self.state.pods
        after, decision = node.admit(before, request)
        assert (after is before) == (known or not decision.admitted)
        assert decision.shared == after.shared_pool
        assert bool(decision.reason) == bool(decision.message) == (not decision.admitted)
        if after is not before:
            self.check_arrival(before, after, request, decision)
        self.state = after

    def check_arrival(self, before, after, request, decision):
        bound = {entry.container: entry.cpus for entry in after.of_pod(request.uid) if entry.cpus}
        assert bound == dict(decision.assignments)
        taken = after.bound - before.bound
        assert taken <= before.free_exclusive
        least = after.config.pools.be_minimum
        assert len(after.best_effort_pool) >= min(least, len(before.best_effort_pool))
        assert {reason.container for reason in decision.reasons} == {one.name for one in request.containers}
        released = node.release(after, request.uid)
        assert released.shared_pool == before.shared_pool
        assert released.best_effort_pool == before.best_effort_pool
        assert released.placed_pods == before.placed_pods
        assert released.requested == before.requested
        assert set(released.entries) == set(before.entries)

    @rule(request=requests())
    def decide_twice(self, request):
        assert node.admit(self.state, request) == node.admit(self.state, request)

    @precondition(lambda self: self.state.pods)
    @rule(data=st.data())
    def end(self, data):
        self.state = node.release(self.state, data.draw(st.sampled_from(sorted(self.state.pods))))

    @precondition(lambda self: self.state.entries)
    @rule(data=st.data())
    def end_container(self, data):
        self.state = node.release(self.state, *data.draw(st.sampled_from(sorted(self.state.entries))))

    @rule()
    def crash(self):
        read = node.codec.decode(node.codec.encode(self.state), self.state.machine, self.state.config)
        assert read == self.state
        self.state = read

    @rule()
    def publish(self):
        state, read = (
            self.state,
            ledger_annotation.load(ledger_annotation.dump(self.state), self.state.machine),
        )
        facts = (
            "bound",
            "exclusive",
            "shared_with_be",
            "shared_pool",
            "best_effort_pool",
            "free_exclusive",
            "placed_pods",
            "pods",
            "requested",
        )
        assert {name: getattr(read, name) for name in facts} == {name: getattr(state, name) for name in facts}
        assert read.config.pools == state.config.pools

    @rule(phase=st.sampled_from(list(node.Phase)))
    def change_phases(self, phase):
        after = self.state
        for uid, container in self.state.entries:
            if after.entries[uid, container].phase is not node.Phase.RELEASING:
                after = node.mark(after, uid, container, phase)
        assert admits_alike(self.state, after)

    @rule(request=requests())
    def admit_another(self, request):
        after, decision = node.admit(self.state, request)
        assert admits_alike(self.state, after) is (not decision.admitted or request.uid in self.state.pods)

    @rule(machine=MACHINES, gone=st.integers(0, 2**32 - 2), pools=st.none() | options)
    def change_ground(self, machine, gone, pools):
        before, machine = self.state, BY_NAME[machine]
        usable = machine.cpus_mask & ~gone
        machine = machine.restricted(usable) if usable else machine
        config = replace(before.config, pools=pools or before.config.pools)
        self.state, _ = node.rebase(before, machine, config)
        assert self.state.entries.keys() == before.entries.keys()
        assert self.state.pods == before.pods

    @invariant()
    def nothing_is_wrong(self):
        assert node.validate(self.state) == []

    @invariant()
    def everybody_runs_somewhere_and_meets_only_whom_it_may(self):
        for entry in self.state.entries.values():
            assert self.state.runs_on(entry)
            assert self.state.runs_on(entry) <= self.state.usable
        for one, other in pairs(self.state):
            met = self.state.runs_on(one) & self.state.runs_on(other)
            assert not met or one.sharing.compatible_with(other.sharing), (one, other, met)
            assert not (one.cpus & other.cpus), "two are bound to one CPU"

    @invariant()
    def the_pools_are_what_is_left(self):
        state, owned = self.state, {sharing: CPUSet() for sharing in Sharing}
        for entry in state.entries.values():
            owned[entry.sharing] = owned[entry.sharing] | entry.cpus
        closed = CPUSet.from_mask(state.config.closed(state.machine))
        free = state.usable - owned[Sharing.ALONE] - owned[Sharing.SHARED_WITH_BE]
        assert state.shared_pool == (free - closed or free)
        assert state.best_effort_pool == state.shared_pool | owned[Sharing.SHARED_WITH_BE] - closed

    @invariant()
    def parts_by_zone_make_up_the_pools(self):
        parts = node.pools_by_zone(self.state)
        assert CPUSet(cpu for zone in parts for cpu in zone.shared) == self.state.shared_pool
        assert CPUSet(cpu for zone in parts for cpu in zone.best_effort) == self.state.best_effort_pool
        assert [zone[:2] for zone in parts] == sorted(zone[:2] for zone in parts)


Pools.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
test_pools = Pools.TestCase
