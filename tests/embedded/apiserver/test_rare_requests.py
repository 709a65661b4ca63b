"""Requests that few clients send, answered as kube-apiserver 1.36.2 answers them."""

import pytest

from corelane.embedded.apiserver.api_requests import Target
from corelane.embedded.apiserver.served_kinds import PODS as PODS_KIND
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.write import namespace_admission, patching
from support.apiserver import CONFIG_MAPS, MERGE, NAMESPACES, PODS, served

NODES = "/api/v1/nodes"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
TABLE = "as=Table;v=v1;g=meta.k8s.io"


def pod(name="p", **spec):
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


@served
async def test_a_malformed_timeout_is_refused_before_the_caller_is_known(api):
    for token in ("admintoken", "wrong", None):
        answer = await api.get(f"{PODS}?timeout=1", token=token)
        assert answer.status == 400
        assert answer.body["message"].startswith("invalid timeout specified in the request URL: '1' is not")
    assert (await api.get(f"{PODS}?timeout=1s")).status == 200
    assert (await api.get(f"{PODS}?timeout=")).status == 200
    await api.made(PODS, pod())
    assert (await api.get(f"{PODS}/p/log?timeout=x")).status == 204
    assert (await api.get(f"{PODS}?watch=1&timeout=x&timeoutSeconds=1")).status == 200


@served
async def test_an_error_is_yaml_only_where_the_object_itself_would_be(api):
    for accept, media in (
        (f"application/yaml;{TABLE}", "application/json"),
        ("application/yaml", "application/yaml"),
        (f"application/yaml;{TABLE}, application/yaml;q=0.5", "application/yaml"),
    ):
        answer = await api.get(f"{PODS}/none", headers={"Accept": accept})
        assert (answer.status, answer.headers["Content-Type"]) == (404, media)


@served
async def test_the_log_of_a_pod_without_a_node_has_no_content(api):
    await api.made(PODS, pod())
    answer = await api.get(f"{PODS}/p/log")
    assert (answer.status, answer.body) == (204, "")
    assert "Content-Type" not in answer.headers


@served
async def test_a_runtime_class_without_a_name_cannot_be_looked_up(api):
    answer = await api("POST", PODS, pod(runtimeClassName=""))
    assert answer.status == 500
    assert answer.body["message"] == "resource name may not be empty"
    assert "reason" not in answer.body


@served
async def test_stop_signals_are_dropped_and_with_them_an_empty_life_cycle(api):
    alone = {"name": "a", "image": "i", "lifecycle": {"stopSignal": "SIGKILL"}}
    hook = {"preStop": {"sleep": {"seconds": 1}}}
    beside = {"name": "b", "image": "i", "lifecycle": {"stopSignal": "SIGKILL", **hook}}
    empty = {"name": "c", "image": "i", "lifecycle": {}}
    found = (await api.made(PODS, pod(containers=[alone, beside, empty])))["spec"]["containers"]
    assert [one.get("lifecycle") for one in found] == [None, hook, {}]
    patch = {"spec": {"activeDeadlineSeconds": 5, "containers": [alone, beside, empty]}}
    changed = await api("PATCH", f"{PODS}/p", patch, headers=MERGE)
    assert [one.get("lifecycle") for one in changed.body["spec"]["containers"]] == [None, hook, {}]


@served
async def test_the_stop_signal_in_a_status_is_kept_whatever_it_is(api):
    await api.made(PODS, pod())
    for signal in ("SIGKILL", "SIGODD", ""):
        status = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        patch = {"status": {"containerStatuses": [status | {"stopSignal": signal}]}}
        answer = await api("PATCH", f"{PODS}/p/status", patch, headers=MERGE)
        assert answer.body["status"]["containerStatuses"][0]["stopSignal"] == signal


@served
async def test_overhead_needs_a_runtime_class(api):
    for overhead in ({"cpu": "1"}, {"example.com/a": "2", "memory": "1Mi"}):
        answer = await api("POST", PODS, pod(overhead=overhead))
        why = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
        assert answer.status == 403
        assert answer.body["message"] == f'pods "p" is forbidden: pod rejected: {why}'
    assert (await api("POST", PODS, pod(overhead={"cpu": "-1"}))).status == 422


SECURITY = "pod-security.kubernetes.io/"
LEVEL = "must be one of privileged, baseline, restricted"
VERSION = 'must be "latest" or "v1.x"'


def namespace(**labels):
    labels = {SECURITY + name.replace("_", "-"): value for name, value in labels.items()}
    return {"metadata": {"name": "n", "labels": labels}}


@pytest.mark.parametrize("mode", ["enforce", "audit", "warn"])
def test_labels_of_pod_security_have_upstreams_values(mode):
    @served
    async def check(api):
        for name, why, wrong, right in (
            (mode, LEVEL, ("odd", "", "Baseline"), ("privileged", "baseline", "restricted")),
            (f"{mode}-version", VERSION, ("", "v1", "v1.01", "v2.3", "Latest"), ("latest", "v1.0", "v1.36")),
        ):
            for value in wrong:
                answer = await api("POST", NAMESPACES, namespace(**{name: value}))
                field = f"metadata.labels[{SECURITY}{name}]"
                message = f'Namespace "n" is invalid: {field}: Invalid value: "{value}": {why}'
                assert (answer.status, answer.body["message"]) == (422, message)
            for value in right:
                answer = await api("POST", f"{NAMESPACES}?dryRun=All", namespace(**{name: value}))
                assert answer.status == 201

    check()


@served
async def test_faulty_labels_of_pod_security_are_named_in_order_and_refused_in_updates(api):
    odd = namespace(warn="a", audit_version="b", audit="c", enforce="d")
    found = (await api("POST", NAMESPACES, odd)).body["details"]["causes"]
    names = ("enforce", "audit", "audit-version", "warn")
    assert [cause["field"] for cause in found] == [f"metadata.labels[{SECURITY}{name}]" for name in names]
    await api.made(NAMESPACES, namespace(enforce="baseline"))
    answer = await api("PATCH", f"{NAMESPACES}/n", namespace(enforce="odd"), headers=MERGE)
    assert answer.status == 422
    other = await api("PATCH", f"{NAMESPACES}/n", namespace(other="odd"), headers=MERGE)
    assert other.body["metadata"]["labels"][SECURITY + "enforce"] == "baseline"


def test_faulty_labels_of_pod_security_from_before_may_stay_as_they_are():
    target = Target("", "update", "", "v1", "namespaces", "", "", "n")
    namespace_admission.check_labels(target, namespace(warn="odd", other="a"), namespace(warn="odd"))
    for old in (namespace(), namespace(warn="odder"), namespace(warn="odd", audit="odd")):
        with pytest.raises(StatusError):
            namespace_admission.check_labels(target, namespace(warn="odd"), old)


@served
async def test_a_version_that_is_not_a_number_does_not_hinder_a_create(api):
    body = {"metadata": {"name": "b", "resourceVersion": "x"}, "spec": {"minAvailable": 1}}
    assert (await api.made(BUDGETS, body))["metadata"]["resourceVersion"].isdigit()
    body["metadata"] |= {"name": "c", "resourceVersion": "7"}
    assert (await api("POST", BUDGETS, body)).status == 500


@served
async def test_unprintable_characters_of_a_field_manager_are_named_with_their_position(api):
    answer = await api("POST", f"{CONFIG_MAPS}?fieldManager=%C3%A9%0A%00", {"metadata": {"name": "a"}})
    assert [cause["message"] for cause in answer.body["details"]["causes"]] == [
        f'Invalid value: "é\\n\\x00": invalid character U+{letter} (at position {at})'
        for letter, at in (("000A", 2), ("0000", 3))
    ]


@served
async def test_namespaces_take_the_finalizer_of_a_propagation_policy(api):
    for number, (query, finalizers) in enumerate(
        (
            ("?propagationPolicy=Orphan", ["orphan"]),
            ("?propagationPolicy=Foreground", ["foregroundDeletion"]),
            ("", None),
        )
    ):
        await api.made(NAMESPACES, {"metadata": {"name": f"n{number}"}})
        answer = await api("DELETE", f"{NAMESPACES}/n{number}{query}")
        assert answer.body["metadata"].get("finalizers") == finalizers


@served
async def test_an_eviction_from_a_terminating_namespace_names_the_pod_of_the_path(api):
    await api.made(NAMESPACES, {"metadata": {"name": "t"}})
    await api("DELETE", f"{NAMESPACES}/t")
    answer = await api("POST", f"{NAMESPACES}/t/pods/b/eviction", {"metadata": {"name": "a"}})
    assert answer.status == 403
    assert answer.body["message"].startswith('pods "b" is forbidden: unable to create new content')


@served
async def test_the_key_of_a_custom_resource_has_its_group(api):
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n", "uid": "other"},
        "zones": [],
    }
    await api.made(TOPOLOGIES, {**topology, "metadata": {"name": "n"}})
    answer = await api("PUT", f"{TOPOLOGIES}/n", topology)
    assert "Key: /registry/topology.node.k8s.io/noderesourcetopologies/n, " in answer.body["message"]


@served
async def test_the_kernel_of_a_node_is_shown_with_its_architecture(api):
    info = {"kernelVersion": "6.1", "architecture": "arm64"}
    await api.made(NODES, {"metadata": {"name": "a"}, "status": {"nodeInfo": info}})
    await api.made(NODES, {"metadata": {"name": "b"}, "status": {"nodeInfo": {"architecture": "arm64"}}})
    await api.made(NODES, {"metadata": {"name": "c"}})
    rows = (await api.get(NODES, headers={"Accept": f"application/json;{TABLE}"})).body["rows"]
    assert [row["cells"][8] for row in rows] == ["6.1 (arm64)", "<unknown> (arm64)", "<unknown>"]


@served
async def test_a_body_of_another_known_kind_cannot_be_converted(api):
    for said in (
        {"kind": "Status"},
        {"kind": "DeleteOptions"},
        {"kind": "Deployment", "apiVersion": "apps/v1"},
    ):
        answer = await api("POST", PODS, {"apiVersion": "v1", **said})
        why = f"converting (v1.{said['kind']}) to (core.Pod): unknown conversion"
        assert answer.body["message"] == f'{said["kind"]} in version "v1" cannot be handled as a Pod: {why}'
    answer = await api("POST", PODS, {"apiVersion": "v1", "kind": "Deployment"})
    assert 'no kind "Deployment" is registered' in answer.body["message"]


CURRENT = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {}}


@pytest.mark.parametrize(("value", "found"), [("[]", "array"), ('{"a":1}', "object"), ("5", "number")])
def test_a_json_patch_that_makes_the_kind_no_text_is_refused(value, found):
    body = f'[{{"op":"add","path":"/kind","value":{value}}}]'.encode()
    with pytest.raises(StatusError) as error:
        patching.apply(PODS_KIND, patching.JSON_PATCH, CURRENT, body)
    assert error.value.code == 422
    why = f"json: cannot unmarshal {found} into Go struct field .kind of type string"
    assert error.value.message.endswith(f"couldn't get version/kind; json parse error: {why}")


def test_an_unknown_directive_is_shown_with_its_map():
    body = b'{"metadata":{"labels":{"$patch":"merge","z":"1"}}}'
    with pytest.raises(StatusError) as error:
        patching.apply(PODS_KIND, patching.STRATEGIC_PATCH, CURRENT, body)
    assert error.value.message == "unknown patch type: merge in map: map[$patch:merge z:1]"
