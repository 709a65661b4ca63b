"""What is done with claims and persistent volumes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.housekeeping import volume_binding as binding
from corelane.embedded.housekeeping import volume_matching as matching
from corelane.embedded.housekeeping.volume_binding import Notice, Patch, StorageFacts
from corelane.kube import keys
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.kube.volumes import reaches

WAITING = {"volumeBindingMode": "WaitForFirstConsumer"}


def claim(name="c", status=None, annotations=None, meta=None, **spec) -> PersistentVolumeClaim:
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "5"}
    metadata["finalizers"] = [binding.CLAIM_FINALIZER]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    tree = {"metadata": metadata | {"annotations": annotations or {}} | (meta or {}), "spec": spec}
    return msgspec.convert(tree | {"status": status or {"phase": "Pending"}}, PersistentVolumeClaim)


def volume(name="v", phase="Available", annotations=None, meta=None, **spec) -> PersistentVolume:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "annotations": annotations or {}}
    metadata["finalizers"] = [binding.VOLUME_FINALIZER]
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **spec}
    tree = {"metadata": metadata | (meta or {}), "spec": spec, "status": {"phase": phase}}
    return msgspec.convert(tree, PersistentVolume)


def klass(name="fast", annotations=None, created="2026-01-01T00:00:00Z", **rest) -> StorageClass:
    metadata = {"name": name, "annotations": annotations or {}, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "provisioner": "example.com/disk", **rest}, StorageClass)


def node(name="n1", **labels) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)


def pod(name="p", on="") -> Pod:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"nodeName": on}}, Pod)


def facts(*objects, pods=()) -> StorageFacts:
    def of(kind):
        return {one.key: one for one in objects if isinstance(one, kind)}

    return StorageFacts(of(PersistentVolume), of(StorageClass), of(Node), lambda _: pods)


def reference(name="c", uid=""):
    return {"kind": "PersistentVolumeClaim", "namespace": "ns", "name": name, "uid": uid}


def done(actions):
    """Patches as (object, part) to content, and the reasons of events, in order."""
    shown = []
    for action in actions:
        if isinstance(action, Notice):
            shown.append((action.about.metadata.name, action.reason, action.message))
        elif isinstance(action, Patch):
            shown.append((action.target.metadata.name, action.subresource, action.body))
        else:
            shown.append(("sync", action.claim.metadata.name))
    return shown


def of_claim(one, *objects, pods=()):
    return done(binding.claim_actions(one, facts(*objects, pods=pods)))


def bound_to(actions):
    """The volume that a claim becomes bound to, by what is written."""
    specs = [body.get("spec", {}) for _, _, body in actions if isinstance(body, dict)]
    return next((spec["volumeName"] for spec in specs if "volumeName" in spec), None)


# Matching.


def test_a_claim_is_bound_in_upstreams_order():
    actions = of_claim(claim(), volume())
    assert actions == [
        (
            "v",
            None,
            {
                "metadata": {
                    "resourceVersion": "7",
                    "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
                },
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": "ns",
                        "name": "c",
                        "uid": "uid-c",
                        "resourceVersion": "5",
                    }
                },
            },
        ),
        ("v", "status", {"status": {"phase": "Bound", "message": None}}),
        (
            "c",
            None,
            {
                "metadata": {
                    "resourceVersion": "5",
                    "annotations": {
                        "pv.kubernetes.io/bound-by-controller": "yes",
                        "pv.kubernetes.io/bind-completed": "yes",
                    },
                },
                "spec": {"volumeName": "v"},
            },
        ),
        (
            "c",
            "status",
            {"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}},
        ),
    ]


@pytest.mark.parametrize(
    ("asked", "given", "expected"),
    [
        (
            {},
            [volume("big", capacity={"storage": "5Gi"}), volume("small", capacity={"storage": "2Gi"})],
            "small",
        ),
        ({}, [volume(capacity={"storage": "1023Mi"})], None),
        ({}, [volume(capacity={"storage": "1024Mi"})], "v"),
        ({}, [volume(phase="Pending")], None),
        ({}, [volume(phase="Released")], None),
        ({}, [volume(accessModes=["ReadOnlyMany"])], None),
        (
            {},
            [
                volume("many", accessModes=["ReadWriteOnce", "ReadOnlyMany"]),
                volume("one", capacity={"storage": "9Gi"}),
            ],
            "one",
        ),
        ({"storageClassName": "fast"}, [volume()], None),
        ({}, [volume(storageClassName="fast")], None),
        ({"storageClassName": "fast"}, [volume(storageClassName="fast")], "v"),
        ({"storageClassName": ""}, [volume()], "v"),
        ({"volumeMode": "Block"}, [volume()], None),
        (
            {"selector": {"matchLabels": {"a": "b"}}},
            [volume(), volume("w", meta={"labels": {"a": "b"}})],
            "w",
        ),
        ({}, [volume(claimRef=reference("other"))], None),
        (
            {},
            [volume("tiny"), volume("mine", "Pending", claimRef=reference(), capacity={"storage": "8Gi"})],
            "mine",
        ),
        ({}, [volume(claimRef=reference(uid="uid-old"))], None),
        ({}, [volume(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], None),
        ({"volumeAttributesClassName": "gold"}, [volume()], None),
    ],
)
def test_the_smallest_suitable_volume_is_chosen(asked, given, expected):
    assert bound_to(of_claim(claim(**asked), *given)) == expected


HERE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [
    {"key": "zone", "operator": "In", "values": ["a"]}
]}]}}  # fmt: skip


def test_a_class_that_waits_binds_only_what_the_scheduler_selected():
    late, local = klass(**WAITING), volume(storageClassName="fast", nodeAffinity=HERE)
    asked = claim(storageClassName="fast")
    assert [one[1] for one in of_claim(asked, late, local)] == ["WaitForFirstConsumer"]
    assert of_claim(asked, late, local, pods=[pod()])[0][1:] == (
        "WaitForPodScheduled",
        "waiting for pod p to be scheduled",
    )
    selected = claim(storageClassName="fast", annotations={keys.SELECTED_NODE: "n1"})
    assert bound_to(of_claim(selected, late, local, node(zone="a"))) == "v"
    assert bound_to(of_claim(selected, late, local, node(zone="b"))) is None
    assert bound_to(of_claim(selected, late, local)) is None


def test_a_volume_that_the_scheduler_reserved_is_bound_without_a_selected_node():
    reserved = volume(storageClassName="fast", claimRef=reference(uid="uid-c"))
    assert bound_to(of_claim(claim(storageClassName="fast"), klass(**WAITING), reserved)) == "v"


@pytest.mark.parametrize(
    ("rule", "labels", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, {"a": "2"}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {}, True),
        ({"key": "a", "operator": "Exists"}, {}, False),
        ({"key": "a", "operator": "DoesNotExist"}, {}, True),
        ({"key": "a", "operator": "Gt", "values": ["5"]}, {"a": "6"}, True),
        ({"key": "a", "operator": "Lt", "values": ["5"]}, {"a": "6"}, False),
        ({"key": "a", "operator": "Gt", "values": ["x"]}, {"a": "6"}, False),
    ],
)
def test_node_affinity_is_read_as_by_upstream(rule, labels, expected):
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    assert reaches(volume(nodeAffinity=affinity), node("n", **labels)) is expected


def test_a_term_without_rules_admits_no_node_and_fields_are_not_looked_at():
    """Upstream's CheckNodeAffinity knows labels only."""
    assert not reaches(volume(nodeAffinity={"required": {"nodeSelectorTerms": [{}]}}), node())
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    named = volume(nodeAffinity={"required": {"nodeSelectorTerms": [field]}})
    assert reaches(named, node("n1"))
    assert reaches(named, node("n2"))


# Claims that stay pending, and why.


def test_a_claim_without_a_volume_says_why_in_upstreams_words():
    assert of_claim(claim())[0][1:] == (
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
    )
    missing = of_claim(claim(storageClassName="x"))
    assert missing == [("c", "ProvisioningFailed", 'storageclass.storage.k8s.io "x" not found')]
    static = of_claim(claim(storageClassName="fast"), klass(provisioner="kubernetes.io/no-provisioner"))
    why = "no volume plugin matched name: kubernetes.io/no-provisioner"
    assert static == [("c", "ProvisioningFailed", why)]


def test_a_claim_that_needs_a_provisioner_names_it_and_waits():
    patch, notice = of_claim(claim(storageClassName="fast"), klass())
    assert patch[2]["metadata"]["annotations"] == {
        "volume.beta.kubernetes.io/storage-provisioner": "example.com/disk",
        "volume.kubernetes.io/storage-provisioner": "example.com/disk",
    }
    assert notice[1] == "ExternalProvisioning"
    assert notice[2].startswith(
        "Waiting for a volume to be created either by the external provisioner 'example.com/disk' or manually"
    )


def test_a_claim_that_names_no_class_gets_the_default_one_later():
    old = klass("old", {"storageclass.kubernetes.io/is-default-class": "true"}, "2025-01-01T00:00:00Z")
    new = klass("new", {"storageclass.kubernetes.io/is-default-class": "true"})
    assert of_claim(claim(), old, new)[0][2]["spec"] == {"storageClassName": "new"}
    assert of_claim(claim(storageClassName=""), new)[0][1] == "FailedBinding"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (volume(capacity={"storage": "1Mi"}), "requested PV is too small"),
        (volume(storageClassName="x"), "storageClassName does not match"),
        (volume(volumeMode="Block"), "incompatible volumeMode"),
        (volume(accessModes=["ReadOnlyMany"]), "incompatible accessMode"),
        (volume(volumeAttributesClassName="x"), "volumeAttributesClassName does not match"),
    ],
)
def test_a_volume_named_by_a_claim_must_suit_it(given, why):
    named = claim(volumeName="v")
    assert of_claim(named, given) == [("c", "VolumeMismatch", f'Cannot bind to requested volume "v": {why}')]


def test_a_named_volume_is_waited_for_or_taken():
    named = claim(volumeName="v")
    assert of_claim(named) == []
    taken = of_claim(named, volume(claimRef=reference("other", "uid-other")))
    assert taken == [("c", "FailedBinding", 'volume "v" already bound to a different claim.')]
    annotations = [
        one[2]["metadata"]["annotations"]
        for one in of_claim(named, volume())
        if one[0] == "c" and one[1] is None
    ]
    assert annotations == [{"pv.kubernetes.io/bind-completed": "yes"}]


def test_a_bound_claim_that_loses_its_volume_is_lost():
    bound = claim(status={"phase": "Bound"}, annotations={keys.BIND_COMPLETED: "yes"}, volumeName="v")
    assert [one[1] for one in of_claim(bound)] == ["status", "ClaimLost"]
    stolen = of_claim(bound, volume(claimRef=reference("c", "uid-other")))
    assert [one[1] for one in stolen] == ["status", "ClaimMisbound"]
    lost = claim(status={"phase": "Lost"}, annotations={keys.BIND_COMPLETED: "yes"}, volumeName="v")
    assert of_claim(lost) == []


# Volumes.


def of_volume(one, owner=None):
    return done(binding.volume_actions(one, owner))


def phases(actions):
    return [body["status"]["phase"] for _, part, body in actions if part == "status"]


def test_a_volume_follows_its_claim():
    assert phases(of_volume(volume(phase="Pending"))) == ["Available"]
    assert of_volume(volume()) == []
    assert phases(of_volume(volume(phase="Pending", claimRef=reference()))) == ["Available"]
    bound = volume(phase="Available", claimRef=reference(uid="uid-c"))
    assert phases(of_volume(bound, claim(volumeName="v"))) == ["Bound"]
    assert of_volume(bound, claim()) == [("sync", "c")]
    assert phases(of_volume(bound, None)) == ["Released"]
    assert phases(of_volume(bound, claim(meta={"uid": "another"}))) == ["Released"]


def test_a_released_volume_is_kept_or_fails_as_nothing_here_deletes_it():
    def gone(phase="Bound", **spec):
        return of_volume(volume(phase=phase, claimRef=reference(uid="u"), **spec))

    assert phases(gone(persistentVolumeReclaimPolicy="Retain")) == ["Released"]
    deleted = gone(persistentVolumeReclaimPolicy="Delete")
    assert phases(deleted) == ["Released", "Failed"]
    assert deleted[-1][1:] == (
        "VolumeFailedDelete",
        'error getting deleter volume plugin for volume "v": no deletable volume plugin matched',
    )
    assert gone(persistentVolumeReclaimPolicy="Recycle")[-1][1] == "VolumeFailedRecycle"
    assert phases(gone(persistentVolumeReclaimPolicy="Delete", csi={"driver": "d"})) == ["Released"]
    assert gone("Failed", persistentVolumeReclaimPolicy="Delete") == []


def test_a_volume_whose_claim_is_bound_elsewhere_is_free_again():
    made = {keys.BOUND_BY_CONTROLLER: "yes"}
    ours = volume(phase="Bound", annotations=made, claimRef=reference(uid="uid-c"))
    patch, status = of_volume(ours, claim(volumeName="w"))
    assert patch[2]["spec"] == {"claimRef": None}
    assert status[2]["status"]["phase"] == "Available"
    users = volume(phase="Bound", claimRef=reference(uid="uid-c"))
    assert of_volume(users, claim(volumeName="w"))[0][2]["spec"] == {"claimRef": {"uid": None}}


# Deletion.

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def test_a_deleted_claim_goes_once_no_scheduled_pod_uses_it():
    going = claim(
        meta={**DELETED, "finalizers": ["kubernetes.io/pvc-protection", "example.com/x"]}, volumeName="v"
    )
    assert of_claim(going, pods=[pod()]) == [
        ("c", None, {"metadata": {"resourceVersion": "5", "finalizers": ["example.com/x"]}})
    ]
    assert of_claim(going, pods=[pod(on="n1")]) == []


def test_a_deleted_volume_goes_once_it_is_not_bound():
    meta = {**DELETED, "finalizers": ["kubernetes.io/pv-protection"]}
    freed = of_volume(volume(meta=meta))
    assert freed == [("v", None, {"metadata": {"resourceVersion": "7", "finalizers": []}})]
    bound = volume(phase="Bound", claimRef=reference(uid="uid-c"), meta=meta)
    assert of_volume(bound, claim(volumeName="v")) == []


# Whatever is drawn, no claim gets a volume of another.

VOLUMES = st.builds(
    lambda name, size, modes, owner, phase: volume(
        name,
        phase,
        capacity={"storage": f"{size}Gi"},
        accessModes=modes,
        **({"claimRef": reference(*owner)} if owner else {}),
    ),
    st.sampled_from("uvwxyz"),
    st.integers(1, 4),
    st.lists(st.sampled_from(["ReadWriteOnce", "ReadOnlyMany"]), min_size=1, unique=True),
    st.sampled_from([None, ("c", ""), ("c", "uid-c"), ("c", "uid-old"), ("d", "uid-d")]),
    st.sampled_from(["Available", "Pending", "Bound", "Released"]),
)


@given(st.lists(VOLUMES, max_size=5, unique_by=lambda one: one.metadata.name), st.integers(1, 4))
def test_a_claim_gets_only_a_volume_that_is_free_or_its_own(volumes, size):
    asked = claim(resources={"requests": {"storage": f"{size}Gi"}})
    name = bound_to(of_claim(asked, *volumes))
    if name is None:
        return
    (chosen,) = [one for one in volumes if one.metadata.name == name]
    owner = chosen.spec.claim_ref
    assert owner is None or (owner.name, owner.uid) in {("c", ""), ("c", "uid-c")}
    assert matching.storage(chosen.spec.capacity) >= size * 2**30 * 10**9
    assert "ReadWriteOnce" in chosen.spec.access_modes


def test_what_lost_its_finalizer_gets_it_again_before_anything_else():
    bare = claim(meta={"finalizers": ["example.com/x"]})
    (given,) = of_claim(bare, volume())
    assert given[2]["metadata"]["finalizers"] == ["example.com/x", "kubernetes.io/pvc-protection"]
    (given,) = of_volume(volume(meta={"finalizers": []}))
    assert given[2]["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
