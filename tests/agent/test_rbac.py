"""The agent's permissions: what it asks for, and nothing that would let it do more."""

import asyncio
from pathlib import Path

import msgspec
import yaml

from corelane.agent.agent_lease import AgentLease
from corelane.agent.allocation.instructions import Annotate, PublishCondition, PublishEvent
from corelane.agent.event_loop import EventQueue
from corelane.agent.node_publication import TopologyMetadata
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.topology_writer import TopologyWriter
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.informer import Informer
from corelane.kube.objects import KINDS, Lease, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.spec import parse_spec
from corelane.node.ledger import new
from support.clocks import SetClocks
from support.fake_api import answer, failure, listing, serving, watching

DEPLOY = Path(__file__).parents[2] / "deploy/agent"
READS = {"get", "list", "watch"}

# Every request of an agent beside a kubelet: resource to verbs.
REQUESTS = {
    ("", "nodes/pods"): {"get"},
    ("", "nodes/configz"): {"get"},
    ("", "nodes"): {"list", "watch"},
    ("", "nodes/status"): {"patch"},
    ("", "pods"): READS | {"patch"},
    ("", "pods/status"): {"patch"},
    ("", "events"): {"create"},
    ("topology.node.k8s.io", "noderesourcetopologies"): READS | {"create", "patch"},
    ("coordination.k8s.io", "leases"): {"get", "create", "patch"},
}


def granted(name):
    documents = yaml.safe_load_all((DEPLOY / name).read_text())
    roles = [document for document in documents if document["kind"] in ("ClusterRole", "Role")]
    return {
        (group, resource): set(rule["verbs"])
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def bound(name):
    documents = list(yaml.safe_load_all((DEPLOY / name).read_text()))
    (role,) = [document for document in documents if document["kind"] == "ClusterRole"]
    (binding,) = [document for document in documents if document["kind"] == "ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    return subject["namespace"], subject["name"]


def test_the_agent_is_granted_what_it_requests_and_no_more():
    assert granted("rbac.yaml") == REQUESTS


def test_running_commands_through_the_kubelet_is_an_opt_in():
    assert granted("rbac-older-kubelets.yaml") == {("", "nodes/proxy"): {"get"}}
    assert bound("rbac-older-kubelets.yaml") == bound("rbac.yaml") == ("corelane-system", "corelane-agent")


def test_every_resource_is_one_that_corelane_reads_or_writes():
    served = {(kind.api.group, kind.api.plural) for kind in KINDS}
    assert {(group, resource.partition("/")[0]) for group, resource in REQUESTS} <= served


def needed(method, path, query):
    """The permission that the API server would ask for: group, resource and verb."""
    parts = path.strip("/").split("/")
    group = "" if parts[0] == "api" else parts[1]
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[0] == "namespaces":
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:]])
    one = len(rest) > 1
    verbs = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
    return group, resource, verbs.get(method) or ("get" if one else "watch" if "watch" in query else "list")


def test_every_write_and_read_of_the_agent_is_permitted():
    async def story():
        async with serving() as (fake, client):
            for path in ("/api/v1/pods", "/api/v1/nodes", NodeResourceTopology.api.path()):
                fake.script[path] = [listed]
                fake.script[f"{path}?watch"] = [watching()]
            # Not there at first, created by another in between, and to be patched then.
            fake.script[NodeResourceTopology.api.path(name="n")] = [gone, answer({})]
            publisher = Publisher(client, "n", PublicationReporter(), SetClocks())
            tasks = [asyncio.create_task(queue.run()) for queue in publisher.queues]
            informers = [
                Informer(client, kind, field_selector="x=n") for kind in (Pod, Node, TopologyMetadata)
            ]
            tasks += [asyncio.create_task(informer.run()) for informer in informers]
            publisher.publish(POD, PublishCondition("u", True, "Confirmed", "", 0.0), MACHINE)
            publisher.publish(POD, PublishEvent("u", "Pinned", "CPUs 1"), MACHINE)
            publisher.publish(POD, Annotate("u", {"main": CPUSet([1])}), MACHINE)
            publisher.kubelet_cpusets([POD], {"u": {"main": CPUSet([1])}})
            publisher.ledger_condition("", 0.0)
            publisher.event(None, "ModeChanged", "owner", warning=False)
            writer = TopologyWriter(client, "n", publisher, PublicationReporter())
            writer.write(lambda: translate.topology(MACHINE, "n", new(MACHINE)))
            # The Lease is of no agent, then created and given up.
            stored = answer({"metadata": {"resourceVersion": "1"}})
            fake.script[Lease.api.path("corelane-system", "n")] = [gone, gone, stored]
            fake.script[Lease.api.path("corelane-system")] = [stored]
            lease = AgentLease(client, "n", EventQueue(), AgentReporter(), SetClocks())
            lease.belongs_to("u")
            assert not await lease.wait_for_other(lambda _: None)
            tasks.append(asyncio.create_task(lease.run()))
            await until(lambda: lease.held)
            await lease.release()
            await until(lambda: expected() <= permissions(fake))
            for task in tasks:
                task.cancel()
            return permissions(fake)

    assert asyncio.run(asyncio.wait_for(story(), 120)) == expected()


gone = failure(404, "NotFound", "not found")


async def listed(request):
    """Answer a list; an object created under the same path is refused."""
    return await (listing() if request.method == "GET" else gone)(request)


def permissions(fake):
    return {needed(request.method, request.path, request.query) for request in fake.seen}


def expected():
    """All permissions but those for the kubelet, and for objects that are read by lists and watches."""
    others = {("pods", "get"), ("nodes/pods", "get"), ("nodes/configz", "get")}
    permissions = ((group, resource, verb) for (group, resource), verbs in REQUESTS.items() for verb in verbs)
    return {permission for permission in permissions if permission[1:] not in others}


MACHINE = parse_spec("socket:1 core:2 smt:1")
POD = msgspec.convert(
    {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}},
    Pod,
)


async def until(holds):
    while not holds():
        await asyncio.sleep(0.01)
