"""The manifests in `examples/stories/`, and what becomes of their pods on a node."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube import decode, translate
from corelane.kube.pod import Pod
from corelane.machine import sources
from corelane.node.config import AllocatorName, NodeConfig, PoolOptions
from corelane.node.ledger import Decision, NodeState

DIRECTORY = Path(__file__).parents[2] / "examples" / "stories"


def names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.yaml"))


def path(name: str) -> Path:
    return DIRECTORY / f"{name}.yaml"


def header(name: str) -> list[str]:
    """The comment at the top of a manifest, line by line."""
    lines = path(name).read_text().splitlines()
    count = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return [line.removeprefix("#").removeprefix(" ") for line in lines[:count]]


def commands(name: str) -> Iterator[list[str]]:
    """The commands that the header gives, each as its words."""
    indented = "\n".join(line for line in header(name) if line.startswith("  "))
    for line in indented.replace("\\\n", " ").splitlines():
        yield shlex.split(line)


def machine(name: str) -> str:
    """The machine that the header names; all of its commands name the same."""
    (spec,) = {words[words.index("--machine") + 1] for words in commands(name) if "--machine" in words}
    return spec


def pods(name: str) -> list[Pod]:
    """As the API server would keep them, with UIDs after their names."""
    found = []
    for tree in yaml.safe_load_all(path(name).read_text()):
        tree["metadata"] |= {"namespace": "default", "uid": f"uid-{tree['metadata']['name']}"}
        pod = decode.decode_object(Pod, msgspec.json.encode(tree))
        assert isinstance(pod, Pod)
        found.append(pod)
    return found


@dataclass(frozen=True)
class Placed:
    """A node after the pods of a story have come, and what each was told."""

    state: NodeState
    decisions: Mapping[str, Decision]

    def cpus(self, pod: str, container: str = "app") -> CPUSet:
        decision = self.decisions[pod]
        assert decision.admitted, decision.message
        return decision.assignments[container]

    def cores(self, cpus: CPUSet) -> int:
        """The cores that CPUs touch, as a mask of their lowest CPUs."""
        return self.state.topology.cores_of(cpus.mask)

    def numa(self, cpus: CPUSet) -> list[int]:
        return [number for number, mask in self.state.machine.numa_masks if mask & cpus.mask]

    def whole(self, cpus: CPUSet) -> bool:
        """Whether they are nothing but whole cores."""
        return self.state.topology.whole_cores(cpus.mask) == cpus.mask


def pools(name: str, allocator: AllocatorName = "optimal", **options: object) -> NodeState:
    """A node with policy `pools` and the story's machine; `reserved` is a list of CPUs."""
    found = sources.load(machine(name))
    reserved = options.pop("reserved", "")
    kept = CPUSet.parse(str(reserved)) if reserved else None
    chosen = PoolOptions(allocator=allocator, **options)  # type: ignore[arg-type]
    return node.new(found, NodeConfig(policy="pools", reserved=kept, pools=chosen))


def place(state: NodeState, *come: Pod) -> Placed:
    """Admit pods in their order."""
    decisions = {}
    for pod in come:
        state, decisions[pod.metadata.name] = node.admit(state, translate.request(pod))
    return Placed(state, decisions)
