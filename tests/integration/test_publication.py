"""What the agent beside a kubelet writes, on a real API server and with the permissions of `deploy/agent`."""

import asyncio
import json
from pathlib import Path

import pytest

from corelane.agent.allocation.instructions import Annotate, PublishCondition, PublishEvent
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.topology_writer import TopologyWriter
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.client import KubeClient
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import new
from support import cluster_pods
from support.clocks import SetClocks

pytestmark = pytest.mark.integration

CRD = Path(__file__).parents[2] / "deploy/noderesourcetopologies.yaml"
RBAC = Path(__file__).parents[2] / "deploy/agent/rbac.yaml"
MACHINE = parse_spec("socket:1 numa:2 core:4 smt:1 mem:1G")
NODE = "published"


class Reporter(PublicationReporter):
    def __init__(self):
        self.failures, self.owners = [], []

    def api_failed(self, what, error):
        self.failures.append((what, str(error)))

    def malfunction(self, what, error):
        self.failures.append((what, repr(error)))

    def zones_owned_by(self, owner):
        self.owners.append(owner)


@pytest.fixture(scope="module")
def kubectl(plane, tmp_path_factory):
    kubectl = plane.kubectl(tmp_path_factory.mktemp("kubectl"))
    kubectl("apply", "-f", str(CRD))
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    kubectl("apply", "-f", str(RBAC))
    kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    )
    made = cluster_pods.pod("pinned", cluster_pods.guaranteed("app", 1), node=NODE)
    kubectl("apply", "-f", "-", stdin=json.dumps(made))
    yield kubectl
    kubectl("delete", "pod", "--all", "--grace-period=0", "--force")
    kubectl("delete", "node", NODE)
    kubectl("delete", "-f", str(RBAC), "--wait=false")


@pytest.fixture
def agent(plane, kubectl, tmp_path):
    """A kubeconfig with a token of the agent's service account."""
    token = kubectl("create", "token", "corelane-agent", "-n", "corelane-system").stdout.strip()
    return plane.kubeconfig(tmp_path / "agent.kubeconfig", token)


def publish(kubeconfig, body):
    async def main():
        client, reporter = KubeClient.connect(kubeconfig), Reporter()
        publisher = Publisher(client, NODE, reporter, SetClocks(1_800_000_000.0))
        topologies = TopologyWriter(client, NODE, publisher, reporter)
        tasks = [asyncio.create_task(queue.run()) for queue in publisher.queues]
        pods = await client.list(Pod, field_selector=f"spec.nodeName={NODE}")
        try:
            await body(publisher, topologies, list(pods.items))
            topologies.flush()
            await asyncio.wait_for(publisher.idle(), 60)
        finally:
            for task in tasks:
                task.cancel()
            await client.close()
        return reporter

    return asyncio.run(main())


def topology(**settings):
    return translate.topology(MACHINE, NODE, new(MACHINE, NodeConfig("pools", **settings)))


def read(kubectl, *what):
    return json.loads(kubectl("get", *what, "-o", "json").stdout)


def test_every_write_passes_with_the_agents_role(kubectl, agent):
    async def body(publisher, topologies, pods):
        (pod,) = pods
        publisher.publish(pod, PublishCondition(pod.metadata.uid, True, "CPUsConfirmed"), MACHINE)
        publisher.publish(pod, Annotate(pod.metadata.uid, {"app": CPUSet([1])}), MACHINE)
        publisher.publish(pod, PublishEvent(pod.metadata.uid, "Pinned", "CPU 1"), MACHINE)
        publisher.event(None, "ModeChanged", "mode owner", warning=False)
        publisher.kubelet_cpusets(pods, {pod.metadata.uid: {"app": CPUSet([2])}})
        publisher.ledger_condition("No space left on device", 0.0)
        topologies.write(topology)

    before = read(kubectl, "pod", "pinned")["status"]
    assert publish(agent, body).failures == []
    pod, node = read(kubectl, "pod", "pinned"), read(kubectl, "node", NODE)
    assert pod["metadata"]["annotations"][keys.KUBELET_CPUSETS] == '{"app":"2"}'
    (pinned,) = [item for item in pod["status"]["conditions"] if item["type"] == keys.PINNED]
    assert (pinned["status"], pinned["reason"]) == ("True", "CPUsConfirmed")
    others = [item for item in pod["status"]["conditions"] if item["type"] != keys.PINNED]
    assert {**pod["status"], "conditions": others} == {**before, "conditions": before.get("conditions", [])}
    (ledger,) = [item for item in node["status"]["conditions"] if item["type"] == keys.LEDGER_WRITABLE]
    assert (ledger["status"], ledger["message"]) == ("False", "No space left on device")
    nrt = read(kubectl, "noderesourcetopology", NODE)
    assert [zone["name"] for zone in nrt["zones"]][:2] == ["node-0", "node-1"]


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("delete", "pods"),
        ("create", "pods"),
        ("patch", "nodes"),
        ("get", "secrets"),
        ("get", "nodes --subresource=proxy"),
    ],
)
def test_other_requests_are_refused(kubectl, verb, resource):
    account = "system:serviceaccount:corelane-system:corelane-agent"
    answer = kubectl("auth", "can-i", verb, *resource.split(), f"--as={account}", code=None)
    assert answer.stdout.strip() == "no"


def test_zones_of_another_exporter_stay_and_come_back_with_its_end(kubectl, agent):
    foreign = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": NODE},
        "zones": [{"name": "node-0", "type": "Node"}],
    }
    kubectl("delete", "noderesourcetopology", NODE, "--ignore-not-found")
    kubectl(
        "apply", "--server-side", "--field-manager=nfd-topology-updater", "-f", "-", stdin=json.dumps(foreign)
    )

    async def twice(publisher, topologies, _pods):
        topologies.write(topology)
        topologies.flush()
        await publisher.idle()
        topologies.write(lambda: topology(reserved_count=2))

    reporter = publish(agent, twice)
    assert (reporter.failures, reporter.owners) == ([], ["nfd-topology-updater"])
    stored = read(kubectl, "noderesourcetopology", NODE)
    assert stored["zones"] == foreign["zones"]
    assert keys.CPU_ALLOCATIONS in stored["metadata"]["annotations"]

    kubectl("delete", "noderesourcetopology", NODE)
    assert publish(agent, twice).owners == []
    assert len(read(kubectl, "noderesourcetopology", NODE)["zones"]) > 1
    assert NodeResourceTopology.api.plural in kubectl("api-resources").stdout
