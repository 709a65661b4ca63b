"""The kubelet's HTTPS endpoints as the agent uses them: permissions on /pods and /configz, and answers."""

import asyncio
import json

import pytest

from corelane.kube.kubelet import KubeletAccess, KubeletClient, KubeletError
from corelane.kube.pod import Pod
from corelane.reasons import Code
from support import cluster_pods
from support.certificates import Authority
from support.programs import wait_for

pytestmark = pytest.mark.integration

RIGHTS = {
    "pods-reader": "nodes/pods",
    "configz-reader": "nodes/configz",
    "reader": "nodes/pods,nodes/configz",
    "proxy-reader": "nodes/proxy",
}
PODS, CONFIGZ = "pods", "configuration"


@pytest.fixture(scope="module", autouse=True)
def granted(cluster):
    for user, resources in RIGHTS.items():
        cluster.kubectl("create", "clusterrole", user, "--verb=get", f"--resource={resources}")
        cluster.kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")
    return cluster


def ask(access: KubeletAccess, *questions: str) -> list:
    """The answers of one client, an error's code in place of a refused one."""

    async def main() -> list:
        client = KubeletClient(access, Pod)
        try:
            return [await _answer(getattr(client, question)) for question in questions]
        finally:
            await client.close()

    return asyncio.run(main())


async def _answer(method):
    try:
        return await method()
    except KubeletError as error:
        return error.reason.code


def access(cluster, token: str = "", **other) -> KubeletAccess:
    return KubeletAccess(cluster.node.url, ca_file=cluster.plane.ca_file, token=token, **other)


@pytest.mark.parametrize(
    ("user", "pods", "configz"),
    [
        ("pods-reader", True, False),
        ("configz-reader", False, True),
        ("reader", True, True),
        ("proxy-reader", True, True),
        ("stranger", False, False),
    ],
)
def test_each_endpoint_takes_its_own_subresource_or_proxy(cluster, user, pods, configz):
    answers = ask(access(cluster, cluster.plane.tokens[user]), PODS, CONFIGZ)
    assert [answer is not Code.KUBELET_FORBIDDEN for answer in answers] == [pods, configz], answers


@pytest.mark.parametrize("token", ["", "not-a-token"])
def test_an_unknown_caller_is_unauthorized(cluster, token):
    assert ask(access(cluster, token), PODS, CONFIGZ) == [Code.KUBELET_UNAUTHORIZED] * 2


def test_a_client_certificate_and_a_service_account_token_are_accepted(cluster, tmp_path):
    cluster.kubectl("create", "serviceaccount", "agent")
    cluster.kubectl(
        "create", "clusterrolebinding", "agent", "--clusterrole=reader", "--serviceaccount=default:agent"
    )
    file = tmp_path / "token"
    file.write_text(cluster.kubectl("create", "token", "agent").stdout)
    pair = cluster.plane.authority.issue(tmp_path / "client.pem", "reader")
    for way in ({"token_file": file}, {"certificate_file": pair}):
        pods, configz = ask(access(cluster, **way), PODS, CONFIGZ)
        assert not isinstance(pods, Code), (way, pods)
        assert configz.cpu_manager_policy == "none"


def test_a_certificate_of_another_authority_or_name_is_refused(cluster, tmp_path):
    token = cluster.plane.tokens["reader"]
    other = KubeletAccess(cluster.node.url, ca_file=Authority.make().write(tmp_path / "ca.crt"), token=token)
    assert ask(other, PODS) == [Code.KUBELET_CERTIFICATE_UNTRUSTED]
    assert ask(access(cluster, token, server_name="node-7"), PODS) == [Code.KUBELET_CERTIFICATE_NAME]
    (pods,) = ask(access(cluster, token, server_name="localhost"), PODS)
    assert not isinstance(pods, Code)


def test_configz_is_the_effective_configuration(cluster):
    (found,) = ask(access(cluster, cluster.plane.tokens["reader"]), CONFIGZ)
    assert (found.cpu_manager_policy, found.topology_manager_policy) == ("none", "none")
    assert (found.memory_manager_policy, found.cpu_cfs_quota) == ("None", True)


def test_pods_of_kubectl_and_of_a_file_are_listed_with_their_origin(cluster):
    made = cluster_pods.pod("by-kubectl", cluster_pods.guaranteed("app", 1), node=cluster.node.name)
    static = cluster_pods.pod("by-file", cluster_pods.burstable("app"), node="")
    static["spec"].pop("nodeName")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    (cluster.node.static_pods / "by-file.json").write_text(json.dumps(static))
    reader = access(cluster, cluster.plane.tokens["reader"])

    def running():
        (pods,) = ask(reader, PODS)
        return {pod.metadata.name: pod for pod in pods.items if pod.status.phase == "Running"}

    names = {"by-kubectl", f"by-file-{cluster.node.name}"}
    pods = wait_for("both pods run", lambda: (now := running()).keys() >= names and now, 120)
    own, file = pods["by-kubectl"], pods[f"by-file-{cluster.node.name}"]
    assert own.metadata.annotations["kubernetes.io/config.source"] == "api"
    assert file.metadata.annotations["kubernetes.io/config.source"] == "file"
    assert file.metadata.uid == file.metadata.annotations["kubernetes.io/config.hash"]

    # The API server knows the static pod by a mirror with another uid, which names the hash.
    mirror = wait_for(
        "the mirror pod",
        lambda: cluster.kubectl.json("get", "pods", "--ignore-not-found", file.metadata.name),
    )
    assert mirror["metadata"]["uid"] != file.metadata.uid
    assert mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] == file.metadata.uid
