"""Pods entered again from their records plan the same as the pods that were lost."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from corelane.cpuset import CPUSet
from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.store.server_backend import Backend, describe
from corelane.embedded.apiserver.write import node_objects, pipeline
from corelane.embedded.pods import pod_manifest
from corelane.embedded.pods.pod_manifest import RunPod, pod_plan
from corelane.embedded.up.lost_pods import NodeRecords, Recovery, recover
from corelane.node.entries import Entry
from corelane.runtime.base import ContainerSpec
from corelane.workload.request import ContainerKind

EXAMPLES = Path(__file__).parents[3] / "examples"
PODS = [
    pytest.param(tree, id=f"{path.stem}-{tree['metadata']['name']}")
    for path in sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("stories/*.yaml")])
    for tree in yaml.safe_load_all(path.read_text())
    if tree and tree.get("kind") == "Pod"
]


def backend() -> Backend:
    made = Backend(Store(None, describe), "corelane-scheduler")
    pipeline.make_default_objects(made)
    return made


def created(server: Backend, tree: dict) -> RunPod:
    kind = served_kinds.PODS
    target = Target("", "create", kind.group, kind.version, kind.plural, namespace="default", kind=kind)
    obj = pipeline.create(server, target, request_bodies.shaped(kind, "v1", tree)[0], WriteOptions()).obj
    return msgspec.convert(obj, RunPod)


def stored(server: Backend, name: str, namespace: str = "default") -> RunPod:
    record = server.store.get("pods", f"{namespace}/{name}")
    assert record is not None
    return msgspec.json.decode(record.value, type=RunPod)


def spec(pod: RunPod, **more: object) -> ContainerSpec:
    values = {"pod_uid": pod.metadata.uid, "namespace": "default", "pod": pod.metadata.name, "name": "app"}
    return ContainerSpec(**values | {"command": ("sleep", "1"), "cpus": CPUSet([0])} | more)


def entered(
    server: Backend,
    *specs: ContainerSpec,
    ledger: dict | None = None,
    live: bool = True,
    forget: bool = False,
) -> Recovery:
    recovery = Recovery()
    records = NodeRecords("here", [(one, live) for one in specs], ledger or {})
    recover(recovery, records, forget=forget)(server)
    return recovery


@pytest.mark.parametrize("tree", PODS)
def test_recreated_pod_has_the_same_plan(tree: dict) -> None:
    lost = created(backend(), tree)
    other = backend()
    recovery = entered(other, spec(lost, manifest=pod_manifest.encode_manifest(lost)))
    again = stored(other, lost.metadata.name)
    assert recovery.recreated == [f"default/{lost.metadata.name}"]
    assert not recovery.partly
    assert again.spec.node_name == "here"
    before, after = pod_plan(lost, processes=True), pod_plan(again, processes=True)
    assert replace(after, conditions={}, bound_by_corelane=False) == replace(before, conditions={})
    assert again.metadata.uid == lost.metadata.uid
    assert again.metadata.labels == lost.metadata.labels


def plain_pod(**meta: str) -> RunPod:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", **meta},
        "spec": {"containers": [{"name": "app", "image": "x", "command": ["sleep", "1"]}]},
    }
    return created(backend(), tree)


def test_records_without_a_manifest_give_containers_with_command_environment_and_request() -> None:
    lost, server = plain_pod(), backend()
    recovery = entered(
        server,
        spec(lost, name="init", command=("true",)),
        spec(
            lost,
            command=("sh", "-c", "echo $(A) $HOME"),
            env=(("A", "$x"),),
            cpu_shares_milli=1500,
            attempt=2,
        ),
        spec(lost, command=("old",), attempt=1),
        ledger={
            lost.metadata.uid: (Entry(lost.metadata.uid, "init", "default/web", kind=ContainerKind.INIT),)
        },
    )
    assert recovery.partly == ["default/web"]
    pod = stored(server, "web")
    assert [c.name for c in pod.spec.init_containers] == ["init"]
    (app,) = pod.spec.containers
    assert app.command == ("sh", "-c", "echo $$(A) $$HOME")
    assert app.env[0].value == "$$x"
    assert app.resources.requests == {"cpu": "1500m"}


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", '{"metadata": {"uid": "another"}, "spec": {}}', '{"spec": 3}']
)
def test_unreadable_manifest_is_replaced_by_the_records(manifest: str) -> None:
    lost, server = plain_pod(), backend()
    assert entered(server, spec(lost, manifest=manifest)).partly == ["default/web"]
    assert stored(server, "web").metadata.uid == lost.metadata.uid


def test_name_taken_by_another_pod_is_extended_by_the_uid() -> None:
    lost, server = plain_pod(), backend()
    other = created(server, {**TREE, "metadata": {"name": "web"}})
    assert entered(server, spec(lost)).recreated == [f"default/web-{lost.metadata.uid[:8]}"]
    assert stored(server, "web").metadata.uid == other.metadata.uid


TREE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "spec": {"containers": [{"name": "app", "image": "x", "command": ["sleep"]}]},
}


def test_namespace_is_created_with_its_pod() -> None:
    lost, server = plain_pod(), backend()
    assert entered(server, spec(lost, namespace="team-a")).recreated == ["team-a/web"]
    assert server.store.get("namespaces", "team-a") is not None


@pytest.mark.parametrize("policy", ["Never", "PreemptLowerPriority"])
def test_priority_stays_though_its_class_is_lost(policy: str) -> None:
    before, server = backend(), backend()
    kind = served_kinds.PRIORITY_CLASSES
    target = Target("", "create", kind.group, kind.version, kind.plural, kind=kind)
    tree = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": policy}
    pipeline.create(before, target, request_bodies.shaped(kind, "v1", tree)[0], WriteOptions())
    lost = created(
        before, {**TREE, "metadata": {"name": "web"}, "spec": {**TREE["spec"], "priorityClassName": "high"}}
    )
    recovery = entered(server, spec(lost, manifest=pod_manifest.encode_manifest(lost)))
    assert (recovery.recreated, recovery.partly) == (["default/web"], [])
    found = stored(server, "web").spec
    assert (found.priority, found.priority_class_name, found.preemption_policy) == (1000, "high", policy)


def test_pod_that_cannot_be_entered_is_named_and_left() -> None:
    lost, server = plain_pod(), backend()
    recovery = entered(server, spec(lost, name="NOT a name"))
    assert recovery.unlisted == {lost.metadata.uid}
    assert recovery.lines()


def test_ended_pod_that_the_ledger_lacks_is_not_recreated() -> None:
    lost = plain_pod()
    assert not entered(backend(), spec(lost), live=False).lines()
    assert entered(backend(), spec(lost), live=False, ledger={lost.metadata.uid: ()}).recreated


def test_deleted_pod_is_not_doubted() -> None:
    server = backend()
    lost = created(server, {**TREE, "metadata": {"name": "web"}})
    server.store.delete("pods", "default/web")
    assert not entered(server, spec(lost)).lines()


@pytest.mark.parametrize("has_manifest", [True, False])
def test_forgotten_pod_stays_forgotten_at_later_starts(has_manifest: bool) -> None:
    lost, server = plain_pod(), backend()
    other = created(server, {**TREE, "metadata": {"name": "web"}})
    manifest = pod_manifest.encode_manifest(lost) if has_manifest else ""
    record = spec(lost, manifest=manifest, namespace="default")
    assert entered(server, record, forget=True).forgotten == ["default/web"]
    assert node_objects.pod_uids(server) == {other.metadata.uid}
    assert not entered(server, record).lines()
    assert not entered(server, record, forget=True).lines()


def test_present_pod_is_not_touched() -> None:
    server = backend()
    there = created(server, {**TREE, "metadata": {"name": "web"}})
    revision = server.store.revision
    assert not entered(server, spec(there)).lines()
    assert server.store.revision == revision
