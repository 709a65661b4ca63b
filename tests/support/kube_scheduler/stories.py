"""Preemption as a story on an API server: what a scheduler makes of each step, and the recording of it.

`python -m support.kube_scheduler.stories FILE.json` (in `tests`) records the answers of the kube-scheduler
that $KUBE_SCHEDULER names, on the kube-apiserver and etcd of $KUBEBUILDER_ASSETS. Nothing runs the pods: a
victim terminates until a step finishes it, as a kubelet would after the grace period.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Event, Node, PodDisruptionBudget
from corelane.kube.pod import Pod
from support import real_cluster
from support.programs import Program

NAME: Final = "story"
"""Of the scheduler."""
STILL: Final = 2.5
"""Seconds without a change after which a recorded state is final: back-offs last 1 s."""
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
Object: TypeAlias = dict[str, Any]
PRIORITIES: Final = {"low": 10, "mid": 100, "high": 1000, "top": 5000}


def runs(name: str, node: str, cpu: str, priority: str = "low", age: int = 1, **more: Any) -> Object:
    return {"do": "run", "name": name, "node": node, "cpu": cpu, "priority": priority, "age": age, **more}


def comes(name: str, cpu: str, priority: str, **more: Any) -> Object:
    return {"do": "submit", "name": name, "cpu": cpu, "priority": priority, **more}


def finishes(*names: str) -> Object:
    return {"do": "finish", "names": names}


def budget(app: str, allowed: int) -> Object:
    return {"do": "budget", "app": app, "allowed": allowed}


def _with(kind: str, app: str) -> Object:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


NEVER: Final = {"never": True}
"""Its priority class has preemptionPolicy Never."""
STORIES: Final[dict[str, tuple[tuple[str, ...], list[Object]]]] = {
    "the node whose highest victim is lowest": (
        ("n1", "n2", "n3"),
        [
            runs("a", "n1", "4", "mid"),
            runs("b", "n2", "4", "low"),
            runs("c", "n3", "2", "low"),
            runs("d", "n3", "2", "high"),
            comes("p", "3", "high"),
            finishes("b"),
        ],
    ),
    "the most important victims are spared": (
        ("n1",),
        [
            runs("a", "n1", "1", "low", 1),
            runs("b", "n1", "1", "low", 9),
            runs("c", "n1", "1", "mid", 1),
            runs("d", "n1", "1", "low", 5),
            comes("p", "2", "high"),
            finishes("a", "d"),
        ],
    ),
    "a budget turns the choice": (
        ("n1", "n2"),
        [
            budget("a", 0),
            runs("a", "n1", "4", "low"),
            runs("b", "n2", "4", "mid"),
            comes("p", "4", "high"),
            finishes("b"),
        ],
    ),
    "a budget that allows one of two": (
        ("n1", "n2"),
        [
            budget("a", 1),
            runs("a1", "n1", "2", "low", app="a"),
            runs("a2", "n1", "2", "low", app="a"),
            runs("b1", "n2", "2", "mid"),
            runs("a3", "n2", "2", "low", app="a"),
            comes("p", "4", "high"),
        ],
    ),
    "all budgets are broken where nothing else helps": (
        ("n1",),
        [budget("a", 0), runs("a", "n1", "4"), comes("p", "4", "mid"), finishes("a")],
    ),
    "a pod that never preempts waits": (
        ("n1",),
        [
            runs("a", "n1", "3"),
            comes("p", "3", "high", **NEVER),
            comes("q", "1", "low"),
            finishes("a"),
        ],
    ),
    "a pod that never preempts is preempted": (
        ("n1",),
        [
            runs("a", "n1", "3", "low", **NEVER),
            comes("p", "4", "mid"),
            finishes("a"),
        ],
    ),
    "nothing lower takes the place of a nominated pod": (
        ("n1",),
        [
            runs("a", "n1", "4"),
            comes("p", "3", "high"),
            comes("q", "2", "mid"),
            comes("r", "1", "low"),
            finishes("a"),
        ],
    ),
    "an equal pod does not take the place either": (
        ("n1",),
        [runs("a", "n1", "4"), comes("p", "3", "high"), comes("q", "3", "high"), finishes("a")],
    ),
    "a higher pod takes the nomination": (
        ("n1",),
        [
            runs("a", "n1", "4"),
            comes("p", "3", "mid"),
            comes("q", "3", "high"),
            finishes("a"),
        ],
    ),
    "a higher pod leaves the nominated one its place where both fit": (
        ("n1",),
        [
            runs("a", "n1", "4"),
            comes("p", "2", "mid"),
            comes("q", "2", "high"),
            finishes("a"),
        ],
    ),
    "the nominated pod goes where there is room first": (
        ("n1", "n2"),
        [
            runs("a", "n1", "4"),
            runs("b", "n2", "4", "high"),
            comes("p", "3", "mid"),
            finishes("b"),
            finishes("a"),
        ],
    ),
    "a deleted nominated pod frees its place": (
        ("n1",),
        [
            runs("a", "n1", "3"),
            comes("p", "4", "high"),
            comes("q", "1", "mid"),
            finishes("p"),
            finishes("a"),
        ],
    ),
    "affinity to a nominated pod does not count yet": (
        ("n1",),
        [
            runs("a", "n1", "4"),
            comes("p", "2", "high", app="x"),
            comes("q", "1", "mid", **_with("podAffinity", "x")),
            finishes("a"),
        ],
    ),
    "anti-affinity to a nominated pod counts already": (
        ("n1", "n2"),
        [
            runs("a", "n1", "3"),
            runs("b", "n2", "4", "top"),
            comes("p", "2", "high", app="x"),
            comes("q", "1", "mid", **_with("podAntiAffinity", "x")),
            finishes("a"),
        ],
    ),
    "two preemptors, two nodes": (
        ("n1", "n2"),
        [
            runs("a", "n1", "4", "low"),
            runs("b", "n2", "4", "mid"),
            comes("p", "4", "high"),
            comes("q", "4", "top"),
            finishes("a"),
            finishes("b"),
        ],
    ),
    "pods that terminate anyway": (
        ("n1", "n2"),
        [
            runs("a", "n1", "4", "low"),
            runs("b", "n2", "4", "mid"),
            {"do": "delete", "names": ["b"]},
            comes("p", "4", "high"),
            finishes("b"),
        ],
    ),
    "no victim helps": (
        ("n1", "n2"),
        [
            runs("a", "n1", "4", "high"),
            runs("b", "n2", "1", "low"),
            comes("p", "4", "mid", nodeSelector={"kubernetes.io/hostname": "n1"}),
            comes("q", "9", "high"),
        ],
    ),
}


class Teller:
    """Tells one story on a server with a scheduler; each has a namespace and nodes of its own."""

    def __init__(self, client: KubeClient, number: int) -> None:
        self.client, self.namespace, self.prefix = client, f"story-{number}", f"s{number}-"

    async def begin(self, nodes: tuple[str, ...]) -> None:
        await self.client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        for node in nodes:
            name = self.prefix + node
            labels = {"kubernetes.io/hostname": name}
            await self.client.create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            )
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
            await self.client.patch(Node, name, {"status": status}, subresource="status")
            await self.client.patch(Node, name, {"spec": {"taints": None}})

    async def do(self, step: Object) -> None:
        match step["do"]:
            case "run":
                await self._pod(step, nodeName=self.prefix + step["node"])
                started = {"status": {"phase": "Running", "startTime": f"2026-11-0{step['age']}T00:00:00Z"}}
                await self.client.patch(
                    Pod, step["name"], started, namespace=self.namespace, subresource="status"
                )
            case "submit":
                await self._pod(step)
            case "finish":
                for name in step["names"]:
                    path = f"/api/v1/namespaces/{self.namespace}/pods/{name}?gracePeriodSeconds=0"
                    await self.client.raw("DELETE", path)
            case "delete":
                for name in step["names"]:
                    await self.client.delete(Pod, name, namespace=self.namespace)
            case "budget":
                await self._budget(step)

    async def _pod(self, step: Object, **placed: str) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": step["cpu"]}}}
        spec: Object = {
            "schedulerName": NAME,
            "priorityClassName": f"story-{step['priority']}{'-never' if step.get('never') else ''}",
            "terminationGracePeriodSeconds": 600,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
            **{key: step[key] for key in ("affinity",) if key in step},
            **placed,
        }
        if "nodeSelector" in step:
            spec["nodeSelector"] = {key: self.prefix + text for key, text in step["nodeSelector"].items()}
        else:
            # Nodes of other stories are left alone.
            rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": await self._nodes()}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
            required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
            spec["affinity"] = {**spec.get("affinity", {}), **required}
        labels = {"app": step.get("app", step["name"])}
        metadata = {"name": step["name"], "namespace": self.namespace, "labels": labels}
        await self.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def _nodes(self) -> list[str]:
        names = (one.metadata.name for one in (await self.client.list(Node)).items)
        return [name for name in names if name.startswith(self.prefix)]

    async def _budget(self, step: Object) -> None:
        name = f"of-{step['app']}"
        await self.client.create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": step["app"]}}},
            }
        )
        status = {
            "disruptionsAllowed": step["allowed"],
            "currentHealthy": 2,
            "desiredHealthy": 1,
            "expectedPods": 2,
            "observedGeneration": 1,
        }
        await self.client.patch(
            PodDisruptionBudget, name, {"status": status}, namespace=self.namespace, subresource="status"
        )

    async def state(self) -> Object:
        """Each pod: where it is or is to be, whether it terminates, and why it is pending."""
        pods = [
            one for one in (await self.client.list(Pod)).items if one.metadata.namespace == self.namespace
        ]
        return {one.metadata.name: dict(self._pod_state(one)) for one in pods}

    def _pod_state(self, pod: Pod) -> Iterator[tuple[str, Any]]:
        for key, node in (("node", pod.spec.node_name), ("nominated", pod.status.nominated_node_name)):
            if node:
                yield key, node.removeprefix(self.prefix)
        if pod.metadata.deletion_timestamp:
            target = condition(pod.status.conditions, "DisruptionTarget")
            yield "terminating", target.reason if target else ""
        found = condition(pod.status.conditions, "PodScheduled")
        if found is not None and found.status == "False":
            yield "why", f"{found.reason}: {found.message}"

    async def events(self) -> list[Object]:
        """Events about preemption, in the order of their pods; UIDs as names."""
        found = [one for one in (await self.client.list(Event)).items if one.reason == "Preempted"]
        mine = [one for one in found if one.metadata.namespace == self.namespace]
        return sorted(
            (
                {
                    "of": one.involved_object.name,
                    "type": one.type,
                    "action": one.action,
                    "note": _UID.sub("UID", one.message),
                }
                for one in mine
            ),
            key=lambda one: (one["of"], one["note"]),
        )


def plain(answer: Object, prefix: str) -> Object:
    """An answer without the prefix of the story's nodes."""
    return json.loads(json.dumps(answer).replace(prefix, ""))


async def classes(client: KubeClient) -> None:
    for name, value in PRIORITIES.items():
        metadata = {"name": f"story-{name}"}
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata}
        await client.create(body | {"value": value})
        never = {"metadata": {"name": f"story-{name}-never"}, "preemptionPolicy": "Never"}
        await client.create(body | {"value": value} | never)


async def _still(teller: Teller) -> Object:
    state, since = await teller.state(), time.monotonic()
    while time.monotonic() - since < STILL:
        await asyncio.sleep(0.2)
        now = await teller.state()
        if now != state:
            state, since = now, time.monotonic()
    return state


async def told(client: KubeClient, number: int, story: str) -> Object:
    """Tell a story, wait after each step until nothing changes any more, and return all states."""
    nodes, steps = STORIES[story]
    teller, states = Teller(client, number), []
    await teller.begin(nodes)
    for step in steps:
        await teller.do(step)
        if step["do"] in {"run", "budget"}:
            continue
        states.append(await _still(teller))
    answer = plain({"states": states, "events": await teller.events()}, teller.prefix)
    for pod in await teller.state():
        await teller.do({"do": "finish", "names": [pod]})
    for node in nodes:
        await client.delete(Node, teller.prefix + node)
    return answer


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="corelane-st-") as name:
        home = Path(name)
        with real_cluster.control_plane(real_cluster.servers(), home) as plane:
            kubeconfig = plane.kubeconfig(home / "admin", plane.token)
            config = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 1000},
                "leaderElection": {"leaderElect": False},
                "podInitialBackoffSeconds": 1,
                "podMaxBackoffSeconds": 1,
                "profiles": [{"schedulerName": NAME}],
            }
            (home / "config.yaml").write_text(yaml.safe_dump(config))
            options = (f"--config={home}/config.yaml", "--secure-port=0", "--v=2")
            program = Program(home / "kube-scheduler.log", os.environ["KUBE_SCHEDULER"], *options)
            try:
                answers = asyncio.run(_recorded(kubeconfig))
            finally:
                program.stop()
    body = {"program": "kube-scheduler", "version": "v1.36.2", "stories": answers}
    target.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")


async def _recorded(kubeconfig: Path) -> Object:
    client = KubeClient.connect(kubeconfig)
    try:
        while True:
            try:
                await classes(client)
                break
            except APIError as error:
                if error.code != 403:
                    raise
                await asyncio.sleep(0.2)
        answers = {}
        for number, story in enumerate(STORIES):
            answers[story] = await told(client, number, story)
            print(story, json.dumps(answers[story], indent=1), file=sys.stderr)
        return answers
    finally:
        await client.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
