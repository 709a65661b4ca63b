"""The pods of a soak: what was ordered, what was answered, and which processes have to be there for it.

An order that corelane's death interrupted may have been carried out or not: it is given again until it is
settled. What was answered must hold: an accepted pod runs, an accepted deletion is carried out.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import soak_kernel as kernel
from soak_kernel import Containers, Identity
from soak_up import API, NoAnswer, Object

PODS: Final = "/api/v1/namespaces/default/pods"
State = Literal["creating", "live", "ended", "deleting"]
SLEEP: Final = "exec sleep 1000000"
SCRIPTS: Final = {
    "lse": SLEEP,
    "lsr": SLEEP,
    "burst": SLEEP,
    "effort": SLEEP,
    "pair": SLEEP,
    "family": "sleep 1000000 & (sleep 1000000 & exec sleep 1000000) & wait",
    "chatty": "while :; do echo $SOAK_CONTAINER; sleep 5; done",
    "stubborn": "trap '' TERM; while :; do sleep 1000000; done",
    "job": "sleep 2; echo done",
}
EXCLUSIVE: Final = ("lse", "lsr")
LASTING: Final = ("burst", "effort", "pair", "family", "chatty", "effort", "burst", "effort")
PASSING: Final = ("effort", "burst", "pair", "family", "stubborn", "job", "chatty")


@dataclass
class Pod:
    """A pod as ordered. `accepted`: whether the present order (creation or deletion) was answered."""

    name: str
    kind: str
    manifest: Object
    state: State = "creating"
    accepted: bool = False
    uid: str = ""
    main: dict[str, Identity] = field(default_factory=dict)
    """Main process of each container, since the pod was ready."""
    ids: dict[str, str] = field(default_factory=dict)
    """Container ids of the pod's status, likewise."""
    pinned: bool = False
    """Whether the API said that the kernel confines every container to its CPUs."""

    @property
    def path(self) -> str:
        return f"{PODS}/{self.name}"

    @property
    def containers(self) -> list[str]:
        return [one["name"] for one in self.manifest["spec"]["containers"]]

    @property
    def keys(self) -> list[str]:
        return [f"{self.name}/{name}" for name in self.containers]


class Workload:
    """All pods ordered so far that are not gone; `lasting` pods stay from the first minute to the last."""

    def __init__(self, api: API, marks: Containers, chance: random.Random, lanes: int) -> None:
        self.api, self.marks, self.chance = api, marks, chance
        self.pods: dict[str, Pod] = {}
        self.lanes = lanes
        """Number of pods with exclusive CPUs at a time."""
        self.numbers: Iterator[int] = iter(range(1, 10**9))
        self.orders = {"created": 0, "deleted": 0}

    def new(self, kind: str) -> Pod:
        name = f"{kind}-{next(self.numbers)}"
        return Pod(name, kind, self._manifest(name, kind))

    def _manifest(self, name: str, kind: str) -> Object:
        resources: dict[str, Any] = {}
        labels = {"soak": kind}
        if kind in EXCLUSIVE:
            amounts = {"cpu": "1", "memory": "8Mi"}
            resources = {"requests": amounts, "limits": amounts}
        elif kind in ("burst", "pair"):
            resources = {"requests": {"cpu": "10m", "memory": "4Mi"}}
        if kind == "lse":
            labels["koordinator.sh/qosClass"] = "LSE"
        names = ("a", "b") if kind == "pair" else ("a",)
        containers = [
            {
                "name": one,
                "image": "none",
                "command": ["/bin/sh", "-c", SCRIPTS[kind]],
                "env": [{"name": kernel.MARK, "value": self.marks.mark(name, one)}],
                **({"resources": resources} if resources else {}),
            }
            for one in names
        ]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {
                "containers": containers,
                "restartPolicy": "Never" if kind == "job" else "Always",
                "terminationGracePeriodSeconds": self.chance.choice((0, 1, 2)),
            },
        }

    # Orders.

    async def create(self, kind: str) -> Pod:
        pod = self.new(kind)
        self.pods[pod.name] = pod
        self.orders["created"] += 1
        await self.order(pod)
        return pod

    async def delete(self, pod: Pod) -> None:
        pod.state, pod.accepted = "deleting", False
        self.orders["deleted"] += 1
        await self.order(pod)

    async def order(self, pod: Pod) -> None:
        """Give the present order (again), and note whether it was accepted."""
        try:
            if pod.state == "creating":
                status, answer = await self.api.request("POST", PODS, pod.manifest)
                pod.accepted = status in (201, 409)
            else:
                status, answer = await self.api.request("DELETE", pod.path)
                pod.accepted = status in (200, 202, 404)
        except NoAnswer:
            return
        if not pod.accepted:
            raise AssertionError(f"order of {pod.name} ({pod.state}) refused: {status} {answer}")

    async def churn(self) -> None:
        """Draw one step: a pod comes or a pod goes, a third of the time one with exclusive CPUs."""
        lanes = self.of(*EXCLUSIVE)
        if self.chance.random() < 0.35:
            live = [pod for pod in lanes if pod.state == "live" or (pod.state == "creating" and pod.accepted)]
            if live and (len(lanes) >= self.lanes or self.chance.random() < 0.5):
                await self.delete(self.chance.choice(live))
            if len([pod for pod in lanes if pod.state != "deleting"]) < self.lanes:
                await self.create(self.chance.choice(EXCLUSIVE))
            return
        passing = [
            pod for pod in self.passing() if pod.state in ("live", "ended") or self.chance.random() < 0.2
        ]
        passing = [pod for pod in passing if pod.state != "deleting"]
        if len(passing) >= 4 or (passing and self.chance.random() < 0.4):
            await self.delete(self.chance.choice(passing))
        else:
            await self.create(self.chance.choice(PASSING))

    def of(self, *kinds: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.kind in kinds]

    def live(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.state == "live"]

    def passing(self) -> list[Pod]:
        """Pods of the churn that have no exclusive CPUs: all but the first ones."""
        return [pod for pod in self.pods.values() if pod.kind not in EXCLUSIVE and pod not in self.lasting]

    lasting: tuple[Pod, ...] = ()

    async def start(self, count: int) -> None:
        """Create the lasting pods, and as many with exclusive CPUs as may be."""
        kinds = [LASTING[number % len(LASTING)] for number in range(count - self.lanes)]
        self.lasting = tuple([await self.create(kind) for kind in kinds])
        for _ in range(self.lanes):
            await self.create(self.chance.choice(EXCLUSIVE))

    # What became of them.

    async def settle(self, seconds: float) -> list[str]:
        """Repeat interrupted orders until every order is carried out; return what is wrong."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                present = {one["metadata"]["name"]: one for one in await self.api.items(PODS)}
            except NoAnswer as error:
                present, open_orders = {}, [f"no answer: {error}"]
            else:
                lost = self._lost(present)
                if lost:
                    return lost
                open_orders = await self._advance(present)
            if not open_orders:
                return [f"pod {name} is not one of the soak" for name in present.keys() - self.pods.keys()]
            if time.monotonic() > deadline:
                return [f"not settled after {seconds:.0f} s: {'; '.join(open_orders)}"]
            await asyncio.sleep(0.25)

    def _lost(self, present: dict[str, Object]) -> list[str]:
        found = []
        for pod in list(self.pods.values()):
            if (
                pod.name in present
                or pod.state == "deleting"
                or (pod.state == "creating" and not pod.accepted)
            ):
                continue
            found.append(f"pod {pod.name} ({pod.state}, accepted by the API) is gone")
            del self.pods[pod.name]
        return found

    async def _advance(self, present: dict[str, Object]) -> list[str]:
        """Advance every pod by what is seen; return what is still open."""
        processes = self.marks.processes()
        waiting = []
        for pod in list(self.pods.values()):
            seen = present.get(pod.name)
            if pod.state == "deleting":
                if seen is None and not any(processes.get(key) for key in pod.keys):
                    del self.pods[pod.name]
                    continue
                if seen is not None and (not pod.accepted or "deletionTimestamp" not in seen["metadata"]):
                    if pod.accepted:
                        waiting.append(f"{pod.name}: accepted deletion undone")
                    await self.order(pod)
                waiting.append(f"{pod.name}: being deleted")
            elif pod.state == "creating":
                if seen is None:
                    await self.order(pod)
                if seen is None or not self._started(pod, seen, processes):
                    waiting.append(f"{pod.name}: {_described(seen)}")
        return waiting

    def _started(self, pod: Pod, seen: Object, processes: dict[str, list[Identity]]) -> bool:
        status = seen["status"]
        pod.uid = seen["metadata"]["uid"]
        if pod.kind == "job":
            if status.get("phase") == "Succeeded":
                pod.state, pod.accepted = "ended", False
            return pod.state == "ended"
        pod.pinned = condition(seen, "corelane.io/Pinned")
        ready = condition(seen, "Ready") and all(processes.get(key) for key in pod.keys)
        if not ready or (pod.kind in EXCLUSIVE and not pod.pinned):
            return False
        pod.main = {key: processes[key][0] for key in pod.keys}
        pod.ids = {one["name"]: one["containerID"] for one in status["containerStatuses"]}
        pod.state = "live"
        return True


def condition(pod: Object, kind: str) -> bool:
    """Whether a condition of a pod's status is True."""
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def _described(seen: Object | None) -> str:
    if seen is None:
        return "not in the API"
    status = seen["status"]
    states = [one.get("state") for one in status.get("containerStatuses", ())]
    return f"{status.get('phase')} {status.get('reason', '')} {status.get('message', '')} {states}"
