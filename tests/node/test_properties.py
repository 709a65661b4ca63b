"""The invariants of the ledger under random arrivals, ends, crashes and changes of the machine."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from corelane import node
from corelane.cpuset import CPUSet
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass
from support.node_asks import DUAL, LAPTOP, QUAD_NUMA, SINGLE

MILLI = st.sampled_from([0, 100, 500, 1000, 1000, 1500, 2000, 2000, 3000, 4000, 8000])
OPTIONS = st.sampled_from(
    [
        node.StaticOptions(),
        node.StaticOptions(full_pcpus_only=True),
        node.StaticOptions(strict_cpu_reservation=True),
        node.StaticOptions(distribute_cpus_across_numa=True, full_pcpus_only=True),
        node.StaticOptions(prefer_align_cpus_by_uncorecache=True, strict_cpu_reservation=True),
        node.StaticOptions(distribute_cpus_across_cores=True, align_by_socket=True),
    ]
)
NUMA = st.builds(
    node.TopologyOptions,
    st.sampled_from(["best-effort", "none", "restricted", "single-numa-node"]),
    st.sampled_from(["container", "pod"]),
    st.booleans(),
)
MACHINES = st.sampled_from([LAPTOP, DUAL, QUAD_NUMA, SINGLE])


@st.composite
def pods(draw):
    kinds = draw(st.lists(st.sampled_from(ContainerKind), min_size=1, max_size=4))
    kinds.sort(key=lambda kind: kind is ContainerKind.APP)
    containers = tuple(
        ContainerRequest(f"c{i}", kind, cpu_request=draw(MILLI)) for i, kind in enumerate(kinds)
    )
    names = st.sampled_from([container.name for container in containers])
    sets = st.sets(st.integers(0, 33), max_size=8).map(CPUSet)
    proposal = draw(st.dictionaries(names, sets, max_size=3))
    uid = f"pod-{draw(st.integers(0, 20))}"
    qos = draw(st.sampled_from([QOSClass.GUARANTEED, QOSClass.GUARANTEED, QOSClass.BURSTABLE]))
    return PodRequest(uid, "test", uid, qos, containers, proposal)


class Ledger(RuleBasedStateMachine):
    @initialize(machine=MACHINES, reserved=st.sampled_from([None, None, 1]), options=OPTIONS, numa=NUMA)
    def start(self, machine, reserved, options, numa):
        try:
            self.state = node.new(
                machine, node.NodeConfig(reserved_count=reserved, options=options, numa=numa)
            )
        except node.NodeConfigError:
            self.state = node.new(machine)

    @rule(request=pods())
    def arrive(self, request):
        known = request.uid in self.state.pods
        after, decision = node.admit(self.state, request)
        assert (after is self.state) == (known or not decision.admitted)
        assert decision.shared == after.shared_pool
        assert bool(decision.reason) != decision.admitted
        if decision.admitted and not known:
            for container in request.containers:
                wanted = request.exclusive_cpus(container)
                assert len(decision.assignments.get(container.name, CPUSet())) == wanted
        self.state = after

    @rule(request=pods())
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

    @precondition(lambda self: self.state.entries)
    @rule(data=st.data(), phase=st.sampled_from([node.Phase.APPLIED, node.Phase.CONFIRMED]))
    def mark(self, data, phase):
        self.state = node.mark(self.state, *data.draw(st.sampled_from(sorted(self.state.entries))), phase)

    @rule()
    def crash(self):
        read = node.codec.decode(node.codec.encode(self.state), self.state.machine, self.state.config)
        assert read == self.state
        assert list(read.entries) == list(self.state.entries)
        self.state = read

    @rule(machine=MACHINES, gone=st.integers(0, 2**32 - 2))
    def change_machine(self, machine, gone):
        usable = machine.cpus_mask & ~gone
        self.state, _ = node.rebase(self.state, machine.restricted(usable) if usable else machine)

    @invariant()
    def nothing_is_wrong(self):
        assert node.validate(self.state) == []

    @invariant()
    def the_pool_keeps_the_reserved_cpus_and_loses_all_exclusive_ones(self):
        state = self.state
        assert state.shared_pool
        assert state.shared_pool | state.exclusive | state.reserved == state.usable
        assert state.exclusive.isdisjoint(state.shared_pool | state.reserved)
        if not state.config.options.strict_cpu_reservation:
            assert state.reserved
            assert state.reserved <= state.shared_pool
        lasting = [entry.cpus for entry in state.entries.values() if entry.kind is not ContainerKind.INIT]
        assert sum(map(len, lasting)) == len(CPUSet(cpu for cpus in lasting for cpu in cpus))


Ledger.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_ledger = Ledger.TestCase
