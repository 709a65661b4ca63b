"""What a disruption budget's status says of its pods."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.housekeeping import disruption_budgets
from corelane.kube.meta import rfc3339
from corelane.kube.objects import PodDisruptionBudget
from corelane.kube.pod import Pod

NOW = 1_800_000_000.0


def budget(status=None, generation=1, **spec) -> PodDisruptionBudget:
    tree = {"metadata": {"name": "b", "generation": generation}, "spec": spec, "status": status or {}}
    return msgspec.convert(tree, PodDisruptionBudget)


def pod(name="p", *, ready=True, deleted=False, owner=None) -> Pod:
    meta = {"name": name, "deletionTimestamp": rfc3339(NOW) if deleted else ""}
    if owner:
        meta["ownerReferences"] = [
            {"controller": True, "apiVersion": owner[0], "kind": owner[1], "name": "o"}
        ]
    ready_status = {"type": "Ready", "status": "True" if ready else "False"}
    return msgspec.convert({"metadata": meta, "status": {"conditions": [ready_status]}}, Pod)


def counts(found: disruption_budgets.Disruptions) -> tuple[int, int, int, int]:
    return found.expected, found.desired, found.healthy, found.allowed


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        ({"minAvailable": 1}, [pod("a"), pod("b")], (2, 1, 2, 1)),
        ({"minAvailable": 1}, [pod("a"), pod("b", ready=False)], (2, 1, 1, 0)),
        ({"minAvailable": 1}, [pod("a"), pod("b"), pod("c", deleted=True)], (3, 1, 2, 1)),
        ({"minAvailable": 3}, [pod("a")], (1, 3, 1, 0)),
        ({"minAvailable": 0}, [pod("a"), pod("b")], (2, 0, 2, 2)),
        ({"minAvailable": 0}, [], (0, 0, 0, 0)),
        ({}, [pod("a")], (0, 0, 1, 0)),
        ({"maxUnavailable": 1}, [pod("a"), pod("b")], (0, 0, 2, 0)),
        ({"minAvailable": "50%"}, [pod("a"), pod("b")], (0, 0, 2, 0)),
    ],
)
def test_pods_are_counted_as_by_upstream(spec, pods, expected):
    assert counts(disruption_budgets.measure(budget(**spec), pods, NOW)) == expected


def test_pods_without_a_controller_are_named_where_a_budget_needs_one():
    found = disruption_budgets.measure(budget(maxUnavailable="10%"), [pod("a"), pod("b")], NOW)
    assert found.unmanaged == ("a", "b")
    assert disruption_budgets.measure(budget(minAvailable=1), [pod("a")], NOW).unmanaged == ()


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (("apps/v1", "ReplicaSet"), 'found no controllers for pod "a"'),
        (("v1", "ReplicationController"), 'found no controllers for pod "a"'),
        (("v1", "Node"), "nodes does not implement the scale subresource"),
        (("batch/v1", "Job"), "jobs.batch does not implement the scale subresource"),
        (("example.com/v1", "Fleet"), 'no matches for kind "Fleet" in version "example.com/v1"'),
    ],
)
def test_a_controller_that_is_not_known_fails_the_budget(owner, why):
    with pytest.raises(disruption_budgets.ScaleError, match="^" + why.replace("(", r"\(") + "$"):
        disruption_budgets.measure(budget(maxUnavailable=1), [pod("a", owner=owner)], NOW)
    assert disruption_budgets.measure(budget(minAvailable=1), [pod("a", owner=owner)], NOW).expected == 1


def test_an_evicted_pod_is_not_healthy_until_it_should_have_been_deleted():
    status = {"disruptedPods": {"a": rfc3339(NOW - 60), "gone": rfc3339(NOW - 60)}}
    found = disruption_budgets.measure(budget(status, minAvailable=1), [pod("a"), pod("b")], NOW)
    assert (found.healthy, dict(found.disrupted)) == (1, {"a": rfc3339(NOW - 60)})
    assert found.recheck_at == NOW + 60
    late = disruption_budgets.measure(budget(status, minAvailable=1), [pod("a"), pod("b")], NOW + 61)
    assert (late.healthy, dict(late.disrupted), late.recheck_at) == (2, {}, None)
    assert [one.metadata.name for one in late.not_deleted] == ["a"]


def test_a_deleted_pod_is_confirmed():
    status = {"disruptedPods": {"a": rfc3339(NOW)}}
    found = disruption_budgets.measure(
        budget(status, minAvailable=1), [pod("a", deleted=True), pod("b")], NOW
    )
    assert (dict(found.disrupted), found.not_deleted) == ({}, ())
    patch = disruption_budgets.status_patch(budget(status, minAvailable=1), found, NOW)
    assert patch is not None
    assert patch["disruptedPods"] == {"a": None}


def test_a_mark_is_stale_only_on_a_pod_that_lives_on():
    def marked(status="True", reason="EvictionByEvictionAPI", deleted=""):
        mark = {"type": "DisruptionTarget", "status": status, "reason": reason}
        mark["lastTransitionTime"] = rfc3339(NOW)
        tree = {"metadata": {"deletionTimestamp": deleted}, "status": {"conditions": [mark]}}
        return disruption_budgets.stale_since(msgspec.convert(tree, Pod))

    assert marked() == NOW
    assert marked(status="False") is None
    assert marked(reason="TerminationByKubelet") is None
    assert marked(deleted=rfc3339(NOW)) is None
    assert disruption_budgets.stale_since(pod()) is None


def written(made: PodDisruptionBudget, patch) -> PodDisruptionBudget:
    """The budget with its status patched."""
    tree = msgspec.to_builtins(made)
    pods = {**tree.get("status", {}).get("disruptedPods", {}), **patch.get("disruptedPods", {})}
    tree["status"] = {**tree.get("status", {}), **patch}
    tree["status"]["disruptedPods"] = {name: at for name, at in pods.items() if at}
    return msgspec.convert(tree, PodDisruptionBudget)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6),
    st.integers(0, 6),
    st.integers(1, 4),
    st.lists(st.integers(0, 6), max_size=3),
)
def test_a_status_written_once_is_not_written_again(states, least, generation, evicted):
    pods = [pod(f"p{i}", ready=ready, deleted=deleted) for i, (ready, deleted) in enumerate(states)]
    status = {"disruptedPods": {f"p{i}": rfc3339(NOW) for i in evicted}}
    made = budget(status, generation, minAvailable=least)
    patch = disruption_budgets.status_patch(made, disruption_budgets.measure(made, pods, NOW), NOW)
    assert patch is not None
    assert patch["disruptionsAllowed"] <= max(sum(ready and not gone for ready, gone in states) - least, 0)
    again = written(made, patch)
    assert (
        disruption_budgets.status_patch(again, disruption_budgets.measure(again, pods, NOW), NOW + 1) is None
    )


def test_the_condition_keeps_the_time_of_its_last_change():
    made = budget(minAvailable=1)
    first = written(
        made, disruption_budgets.status_patch(made, disruption_budgets.measure(made, [pod("a")], NOW), NOW)
    )
    assert first.status.conditions[0].reason == "InsufficientPods"
    more = disruption_budgets.status_patch(first, disruption_budgets.measure(first, [], NOW), NOW + 50)
    assert more["conditions"][0]["lastTransitionTime"] == rfc3339(NOW)
    enough = disruption_budgets.measure(first, [pod("a"), pod("b")], NOW)
    changed = disruption_budgets.status_patch(first, enough, NOW + 50)
    assert changed["conditions"][0] | {"observedGeneration": 1} == {
        "type": "DisruptionAllowed",
        "status": "True",
        "reason": "SufficientPods",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": rfc3339(NOW + 50),
    }


def test_a_failure_allows_nothing_and_is_written_once():
    made = budget({"disruptionsAllowed": 2, "observedGeneration": 1}, maxUnavailable=1)
    patch = disruption_budgets.failure_patch(made, "why", NOW)
    assert patch["disruptionsAllowed"] == 0
    assert (patch["conditions"][0]["reason"], patch["conditions"][0]["message"]) == ("SyncFailed", "why")
    assert disruption_budgets.failure_patch(written(made, patch), "why", NOW + 9) is None
