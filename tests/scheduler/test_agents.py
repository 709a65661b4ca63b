"""Pods with exclusive CPUs stay away from nodes whose agent ended, by the Leases that agents renew."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from corelane.kube import agent_leases, keys
from corelane.kube.agent_leases import CHECK_SECONDS, DURATION
from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import Lease, LeaseSpec
from corelane.kube.pod import Pod
from corelane.scheduler.events import AgentLeasesWatched, ObjectChanged, TopologyChanged
from corelane.scheduler.explain.recompute import Snapshot, Trial
from corelane.scheduler.instructions import Instruction
from corelane.scheduler.plugins import default
from support import objects
from support.core_lab import CoreLab, binds, events, message, names
from support.objects import node
from support.pods import container, guaranteed, pod

SPEC = "socket:1 core:8"
ABSENT = "node(s) had no running corelane agent to apply exclusive CPUs"


def lease(name: str, renewed: int = 0, *, holder: str = "agent-1", seconds: int = 60) -> Lease:
    spec = LeaseSpec(holder, seconds, renew_time=f"2026-11-28T10:00:{renewed:02}.000000Z")
    meta = ObjectMeta(name=name, namespace=keys.AGENT_NAMESPACE, resource_version=str(renewed))
    return Lease(metadata=meta, spec=spec)


class Agents(CoreLab):
    """Nodes whose agents announce that they renew a Lease."""

    def __init__(self, *names: str, leased: bool = True, policy: str = "pools") -> None:
        super().__init__(*names)
        for name in names:
            self.agents[name] = objects.state(SPEC, name, policy=policy)
            self.announces(name, leased=leased)

    def announces(self, name: str, *, leased: bool) -> None:
        new = objects.topology(name, self.agents[name], leased=leased)
        self.tell(TopologyChanged(self.now, None, new))

    def renews(self, name: str, renewed: int = 0, **spec: object) -> None:
        self.tell(ObjectChanged(self.now, None, lease(name, renewed, **spec)))  # type: ignore[arg-type]

    def passes(self, seconds: float) -> list[Instruction]:
        """Time passes, with the scheduler at work."""
        done, end = [], self.now + seconds
        while self.now < end:
            done += self.run(min(CHECK_SECONDS, end - self.now))
        return done


def exclusive(name: str = "a") -> Pod:
    return guaranteed(name, "2")


def test_a_node_whose_agent_stops_renewing_gets_no_pods_with_exclusive_cpus_until_it_is_back() -> None:
    lab = Agents("n1")
    lab.renews("n1")
    assert binds(lab.place(exclusive("before")))
    lab.passes(60 + CHECK_SECONDS)
    refusal = message(lab.place(exclusive("after")))
    assert refusal.startswith(f"0/1 nodes are available: 1 {ABSENT}")
    assert "Lease corelane-system/n1 was last renewed at 2026-11-28T10:00:00.000000Z" in refusal
    assert "kubectl -n corelane-system get pods" in refusal
    assert not binds(lab.passes(400))
    lab.renews("n1", 1)
    assert names(lab.passes(30)) == ["after"]


def test_an_agent_that_ends_in_order_counts_as_ended_at_once() -> None:
    lab = Agents("n1")
    lab.renews("n1")
    lab.renews("n1", 1, holder="")
    assert "was given up" in message(lab.place(exclusive()))
    lab.renews("n1", 2, holder="agent-2")
    assert binds(lab.passes(30))


def test_a_node_that_runs_on_takes_the_pod_of_one_whose_agent_ended() -> None:
    lab = Agents("n1", "n2")
    lab.renews("n1", holder="")
    lab.renews("n2")
    assert lab.bound(*(exclusive(f"p{i}") for i in range(3))) == ["n2"] * 3


@pytest.mark.parametrize("one", [pod("s", container("main", "cpu=500m")), guaranteed("s", "1500m")])
def test_pods_without_exclusive_cpus_are_placed_without_an_agent(one: Pod) -> None:
    lab = Agents("n1")
    lab.renews("n1", holder="")
    assert binds(lab.place(one))


@pytest.mark.parametrize(("leased", "policy"), [(False, "pools"), (True, "none")])
def test_a_node_without_a_promise_of_a_lease_or_of_cpus_is_not_judged(leased: bool, policy: str) -> None:
    lab = Agents("n1", leased=leased, policy=policy)
    lab.renews("n1", holder="")
    lab.passes(300)
    assert binds(lab.place(exclusive()))


def test_an_agent_of_the_former_version_after_a_downgrade_is_not_judged_any_longer() -> None:
    lab = Agents("n1")
    lab.renews("n1", holder="")
    assert not binds(lab.place(exclusive()))
    lab.announces("n1", leased=False)
    assert binds(lab.passes(30))


def test_a_scheduler_that_starts_gives_agents_the_whole_time() -> None:
    lab = Agents("n1", "n2")
    lab.renews("n1")  # n2 has no Lease
    assert not lab.passes(DURATION - CHECK_SECONDS)
    assert binds(lab.place(exclusive()))
    lab.passes(2 * CHECK_SECONDS)
    assert lab.bound(exclusive("b")) == ["n1"]
    lab.renews("n1", holder="")
    assert "Lease corelane-system/n2 does not exist" in message(lab.place(exclusive("c")))


def test_a_lease_that_is_deleted_and_not_created_again_ends_the_time() -> None:
    lab = Agents("n1")
    lab.renews("n1")
    lab.tell(ObjectChanged(lab.now, lease("n1"), None))
    assert binds(lab.place(exclusive()))
    lab.passes(60 + CHECK_SECONDS)
    assert "does not exist" in message(lab.place(exclusive("b")))
    lab.renews("n1", 7)
    assert binds(lab.passes(30))


def test_no_time_passes_while_leases_cannot_be_watched() -> None:
    lab = Agents("n1")
    lab.renews("n1")
    lab.tell(AgentLeasesWatched(lab.now, works=False))
    lab.passes(600)
    lab.tell(AgentLeasesWatched(lab.now, works=True))
    lab.passes(50)
    assert binds(lab.place(exclusive()))
    lab.passes(20)
    assert not binds(lab.place(exclusive("b")))
    for works in (False, True):
        lab.tell(AgentLeasesWatched(lab.now, works=works))
    assert not binds(lab.place(exclusive("c"))), "an agent that ended stays so"


def test_no_agent_has_ended_because_the_scheduler_stood_still() -> None:
    lab = Agents("n1")
    lab.renews("n1")
    lab.now += 3600  # stopped by a signal: renewals wait in the socket
    assert binds(lab.place(exclusive()))


def test_the_pod_of_a_whole_cluster_without_agents_says_so_once() -> None:
    names = [f"n{i}" for i in range(20)]
    lab = Agents(*names)
    for name in names:
        lab.renews(name, holder="")
    done = lab.place(exclusive())
    assert message(done).startswith(f"0/20 nodes are available: 20 {ABSENT}")
    assert len(events(done)) == 1


def test_a_trial_of_a_cluster_judges_by_when_leases_were_renewed_as_its_reader_saw_it() -> None:
    names = ("runs", "expired", "gone")
    state = objects.state(SPEC, policy="pools")
    leases = (lease("runs", 59), lease("expired", 0))
    at = datetime(2026, 11, 28, 10, 1, 10, tzinfo=UTC)
    bound = guaranteed("old", "2", node="expired")
    snapshot = Snapshot(
        {name: node(name) for name in names},
        {name: objects.topology(name, state, leased=True) for name in names},
        {bound.metadata.uid: bound},
        agents=agent_leases.judged(names, leases, at),
    )
    trial = Trial(default.profile(), snapshot)
    rejected = {name: trial.rejection(exclusive(), name) for name in names}
    assert rejected["runs"] is None
    assert "was last renewed at" in str(rejected["expired"].reasons[0])  # type: ignore[union-attr]
    assert "does not exist" in str(rejected["gone"].reasons[0])  # type: ignore[union-attr]
    with trial.without([bound]):
        assert trial.rejection(exclusive(), "expired") == rejected["expired"]
    assert trial.rejection(exclusive(), "expired") == rejected["expired"]


def test_a_lease_of_the_kubelets_with_the_nodes_name_is_not_the_agents() -> None:
    lab = Agents("n1")
    lab.renews("n1")
    kubelets = lease("n1", 1, holder="")
    meta = replace(kubelets.metadata, namespace="kube-node-lease")
    lab.tell(ObjectChanged(lab.now, None, replace(kubelets, metadata=meta)))
    assert binds(lab.place(exclusive()))
