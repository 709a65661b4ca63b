"""The embedded API server as a process of its own: `scheduler_server.py READY_FILE [NODES]`.

With NODES, it starts with so many nodes, their topologies, 10 running pods each, and 10 pending pods.
Its address is written to READY_FILE once it answers.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

import scheduler_load as load
from msgspec.structs import replace
from scheduler_cluster import TOKEN

from corelane import node as nodes
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.stored_objects import StoreChange
from corelane.kube import translate
from corelane.kube.pod import Pod

RUNNING = 10
PENDING = 10
_TIME = "2026-01-01T00:00:00Z"


def fill(store: Store, count: int) -> None:
    """Write nodes, topologies and pods, which agents have taken over."""
    topology, pods = _one_node()
    for number in range(count):
        name = load.node_name(number)
        node = load.node_object(number)
        node["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": _TIME}
        changes = [StoreChange("nodes", name, node)]
        named = json.loads(topology.replace("NODE", name))
        changes.append(StoreChange("noderesourcetopologies.topology.node.k8s.io", name, named))
        for text in pods:
            pod = json.loads(text.replace("NODE", name))
            changes.append(StoreChange("pods", f"default/{pod['metadata']['name']}", pod))
        store.write(changes)
    pending = (load.exclusive(f"waiting-{number}", 2) for number in range(PENDING))
    for pod in pending:
        pod["metadata"] |= {"uid": f"uid-{pod['metadata']['name']}", "creationTimestamp": _TIME}
        pod["status"] = {"phase": "Pending"}
        store.put("pods", f"default/{pod['metadata']['name']}", pod)


def _one_node() -> tuple[str, list[str]]:
    """The topology and the pods of a node called NODE, as JSON."""
    state, texts = load.state("NODE"), []
    for number, obj in enumerate(_running()):
        obj["metadata"] |= {
            "uid": f"uid-NODE-{number}",
            "name": f"NODE-pod-{number}",
            "creationTimestamp": _TIME,
        }
        pod = load.read(obj, Pod)
        state, decision = nodes.admit(state, translate.request(pod))
        assert decision.admitted
        obj["metadata"]["annotations"] = dict(
            translate.proposal_annotations(decision.assignments, pod, state.machine, decision.zone)
        )
        obj["spec"]["nodeName"] = "NODE"
        obj["status"] = {"phase": "Running", "startTime": _TIME}
        state = nodes.release(state, pod.metadata.uid)
        bound = replace(load.read(obj, Pod), metadata=load.read(obj, Pod).metadata)
        state, decision = nodes.admit(state, translate.request(bound))
        assert decision.admitted
        texts.append(json.dumps(obj))
    topology = load.topology_object("NODE", state)
    topology["metadata"] |= {"uid": "uid-NODE", "creationTimestamp": _TIME}
    return json.dumps(topology), texts


def _running() -> list[load.Object]:
    own = [load.exclusive("x", cpus) for cpus in (2, 4, 8, 2, 4)]
    return own + [
        load.burstable("x", "500m", "1Gi", labels={"app": f"a{number}"}) for number in range(RUNNING - 5)
    ]


async def serve(ready: Path, count: int) -> None:
    """Serve until SIGTERM."""
    server = APIServer(tokens={TOKEN: User("admin", ("system:masters",))})
    await server.start()
    assert server._store is not None
    fill(server._store, count) if count else None
    await asyncio.to_thread(ready.write_text, server.url)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
