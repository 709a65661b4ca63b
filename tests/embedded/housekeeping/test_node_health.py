"""The pure part of looking after nodes."""

from msgspec.structs import replace

from corelane.embedded.housekeeping import node_controller
from corelane.kube.meta import Condition, ObjectMeta
from corelane.kube.objects import Lease, LeaseSpec, Node, NodeSpec, NodeStatus, Taint
from corelane.kube.pod import Pod, PodSpec


def node(ready="True", *taints: Taint):
    status = NodeStatus(conditions=(Condition(type="Ready", status=ready),))
    return Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(taints=taints), status=status)


def lease(renewed):
    return Lease(spec=LeaseSpec(renew_time=renewed))


def test_silence_counts_from_when_a_change_was_seen_not_from_what_the_lease_says():
    signs = node_controller.LeaseRenewals()
    signs.update("n", lease("1999-01-01T00:00:00Z"), 1000.0)
    signs.update("n", lease("1999-01-01T00:00:00Z"), 1030.0)
    assert signs.age("n", 1030.0) == 30.0
    signs.update("n", lease("1999-01-01T00:00:10Z"), 1035.0)
    assert signs.age("n", 1036.0) == 1.0


def test_a_node_without_a_lease_gets_its_time_too():
    signs = node_controller.LeaseRenewals()
    signs.update("n", None, 1000.0)
    assert signs.age("n", 1041.0) == 41.0


def test_a_node_forgotten_starts_anew():
    signs = node_controller.LeaseRenewals()
    signs.update("n", None, 1000.0)
    signs.retain([])
    assert signs.age("n", 2000.0) == 0.0


def test_awake_time_leaves_out_suspensions_and_steps_back():
    awake = node_controller.AwakeTime(10.0)
    assert [awake.advance(at) for at in (1000.0, 1005.0, 1012.0, 4612.0, 1000.0, 1005.0)] == [
        0.0,
        5.0,
        12.0,
        22.0,
        22.0,
        27.0,
    ]


def test_a_healthy_node_is_left_alone():
    assert node_controller.health_taints(node("True", Taint("own", "x", "NoSchedule")), "True", 0.0) is None


def test_pressure_is_a_taint_as_long_as_it_lasts():
    known = replace(
        node(), status=NodeStatus(conditions=(Condition("Ready", "True"), Condition("DiskPressure", "True")))
    )
    found = node_controller.health_taints(known, "True", 0.0)
    pressed = "node.kubernetes.io/disk-pressure"
    assert [(one["key"], one["effect"]) for one in found] == [(pressed, "NoSchedule")]
    assert node_controller.health_taints(node("True", Taint(pressed, "", "NoSchedule")), "True", 0.0) == []


def test_a_cordons_taint_of_another_effect_or_value_is_the_users():
    own = Taint("node.kubernetes.io/unschedulable", "x", "NoExecute")
    assert node_controller.health_taints(node("True", own), "True", 0.0) is None
    valued = Taint("node.kubernetes.io/unschedulable", "x", "NoSchedule")
    cordoned = replace(node(), spec=NodeSpec(unschedulable=True, taints=(valued,)))
    assert node_controller.health_taints(cordoned, "True", 0.0) is None


def test_an_unreachable_taint_keeps_its_time_while_the_node_stays_lost():
    since = "2026-01-01T00:00:00Z"
    lost = [Taint(node_controller.UNREACHABLE, "", effect, since) for effect in ("NoSchedule", "NoExecute")]
    assert node_controller.health_taints(node("Unknown", *lost), "Unknown", 5e9) is None
    found = node_controller.health_taints(node("Unknown", lost[0]), "Unknown", 0.0)
    assert [(one["effect"], one["timeAdded"]) for one in found] == [
        ("NoSchedule", since),
        ("NoExecute", "1970-01-01T00:00:00Z"),
    ]


def test_only_conditions_that_do_not_say_unknown_yet_are_changed():
    known = NodeStatus(
        conditions=tuple(Condition(type=kind, status="Unknown") for kind in ("Ready", "DiskPressure"))
    )
    changed = node_controller.unknown_conditions(Node(status=known), 0.0)
    assert [one["type"] for one in changed] == ["MemoryPressure", "PIDPressure"]


def test_a_pod_is_no_orphan_while_its_node_may_come_back():
    missing = node_controller.MissingNodes()
    pod = Pod(spec=PodSpec(node_name="n"))
    assert missing.orphans([pod], [], 0.0) == []
    assert missing.orphans([pod], ["n"], 39.0) == []
    assert missing.orphans([pod], [], 41.0) == []
    assert missing.orphans([pod], [], 80.0) == []
    assert missing.orphans([pod], [], 81.0) == [pod]


def test_an_unscheduled_pod_is_no_orphan():
    missing = node_controller.MissingNodes()
    assert missing.orphans([Pod()], [], 0.0) == missing.orphans([Pod()], [], 1e6) == []
