"""The kubelet's memory manager on one node: what of each NUMA node containers may have, and who gets it.

Upstream: `pkg/kubelet/cm/memorymanager` (v1.36, KEP-1769). Only Guaranteed pods have memory of their own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine, NUMANode
from corelane.node.manager_options import MemoryOptions
from corelane.placement.memory_blocks import (
    MEMORY,
    MemoryBlock,
    MemoryNode,
    Nodes,
    best_hint,
    collides,
    given_back,
    holds,
    hugepages,
    memory_hints,
    taken,
)
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.reasons import Code, Refusal
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, PodResources, peak


def nodes_of(machine: Machine, options: MemoryOptions) -> dict[int, MemoryNode]:
    """The memory of an idle machine; nothing under policy None."""
    if options.policy == "None":
        return {}
    return {node.id: _idle(node, options.reserved.get(node.id, {})) for node in machine.nodes}


def _idle(node: NUMANode, reserved: Mapping[str, int]) -> MemoryNode:
    pages = {hugepages(kib): 1024 * kib * count for kib, count in node.hugepages.items()}
    total = {MEMORY: node.memory - sum(pages.values()), **pages}
    allocatable = {name: max(size - reserved.get(name, 0), 0) for name, size in total.items()}
    return MemoryNode(allocatable, allocatable)


def returned(nodes: Nodes, blocks: Iterable[MemoryBlock]) -> Nodes:
    """The nodes after these blocks were given back."""
    for block in blocks:
        nodes = given_back(nodes, block)
    return nodes


def wanted(of: ContainerRequest | PodResources) -> dict[str, int]:
    """Bytes by resource that a container, or a pod as a whole, asks for."""
    pages = {hugepages(kib): size for kib, size in of.hugepages.items()}
    return {MEMORY: of.memory_request, **pages} if of.memory_request else pages


def of_pod(request: PodRequest) -> dict[str, int]:
    """Return what a pod's containers hold at once, of the resources that its app containers request."""
    each = [(container.kind, wanted(container)) for container in request.containers]
    names = {name for kind, of in each if kind is ContainerKind.APP for name in of}
    return {name: peak((kind, of.get(name, 0)) for kind, of in each) for name in sorted(names)}


def blocks_of(amounts: Mapping[str, int], where: int) -> tuple[MemoryBlock, ...]:
    """A block for each of these amounts."""
    nodes = CPUSet.from_mask(where)
    return tuple(MemoryBlock(name, size, nodes) for name, size in sorted(amounts.items()))


def mems(blocks: Iterable[MemoryBlock]) -> CPUSet | None:
    """The NUMA nodes that blocks lie on; None when there are none."""
    mask = 0
    for block in blocks:
        mask |= block.nodes.mask
    return CPUSet.from_mask(mask) if mask else None


class MemoryManager:
    """The memory manager during the admission of one pod: free, reusable and allocated memory."""

    __slots__ = ("blocks", "initial", "nodes", "reusable", "whole")

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.blocks: dict[str, tuple[MemoryBlock, ...]] = {}
        self.initial: list[str] = []
        """The plain init containers so far."""
        self.whole: tuple[MemoryBlock, ...] = ()
        """Blocks of the pod as a whole, of which containers' blocks are then parts."""
        self.reusable: dict[int, dict[str, int]] = {}
        """Memory reusable by later containers on exactly the same set of nodes."""

    def hints(self, amounts: Mapping[str, int]) -> list[Hints]:
        """Return hints for each resource, all equal; no preference if nothing is requested, or fits."""
        family = memory_hints(self.nodes, amounts, self.reusable)
        return [family] * len(amounts) if family else [None]

    def allocate(
        self, container: ContainerRequest, amounts: Mapping[str, int], affinity: NUMAAffinity
    ) -> None:
        """Allocate the requested memory to a container. Raises Refusal with upstream's text."""
        where = self.where(amounts, affinity)
        for name, size in amounts.items():
            self.nodes = taken(
                self.nodes, where, name, max(size - self.reusable.get(where, {}).get(name, 0), 0)
            )
        self.blocks[container.name] = blocks_of(amounts, where)
        if container.kind is ContainerKind.INIT:
            self.lend(where, amounts)
        else:
            self.use_up(where, amounts)
        self.shrink_initial(where, amounts)
        if container.kind is ContainerKind.INIT:
            self.initial.append(container.name)

    def where(self, amounts: Mapping[str, int], affinity: NUMAAffinity) -> int:
        """The nodes to take it from: those of the affinity, widened where they do not hold it."""
        nodes, preferred = affinity.nodes, affinity.preferred
        if nodes is None:
            nodes, preferred = self.default(amounts, preferred)
        if not holds(self.nodes, nodes, amounts):
            nodes = self.extended(amounts, nodes, preferred)
        if collides(self.nodes, nodes):
            raise Refusal(Code.MEMORY_GROUP_VIOLATED)
        return nodes

    def default(self, amounts: Mapping[str, int], preferred: bool) -> tuple[int, bool]:
        hint = best_hint(self.nodes, memory_hints(self.nodes, amounts, self.reusable))
        if hint is None or hint.nodes is None:
            raise Refusal(Code.NO_MEMORY_AFFINITY)
        if preferred and not hint.preferred:
            raise Refusal(Code.NO_PREFERRED_MEMORY_HINT)
        return hint.nodes, hint.preferred

    def extended(self, amounts: Mapping[str, int], nodes: int, preferred: bool) -> int:
        hint = best_hint(self.nodes, memory_hints(self.nodes, amounts, self.reusable), including=nodes)
        if hint is None or hint.nodes is None:
            raise Refusal(Code.NO_EXTENDED_MEMORY_AFFINITY)
        if preferred and not hint.preferred:
            raise Refusal(Code.NO_PREFERRED_EXTENDED_MEMORY_HINT)
        return hint.nodes

    def lend(self, where: int, amounts: Mapping[str, int]) -> None:
        reusable = self.reusable.setdefault(where, {})
        for name, size in amounts.items():
            reusable[name] = max(reusable.get(name, 0), size)

    def use_up(self, where: int, amounts: Mapping[str, int]) -> None:
        reusable = self.reusable.get(where, {})
        for name in reusable.keys() & amounts.keys():
            reusable[name] = max(reusable[name] - amounts[name], 0)

    def shrink_initial(self, where: int, amounts: Mapping[str, int]) -> None:
        """Count what was taken over from init containers once, as the newcomer's."""
        left = dict(amounts)
        for name in self.initial:
            self.blocks[name] = tuple(_shrunk(block, where, left) for block in self.blocks[name])


def _shrunk(block: MemoryBlock, where: int, left: dict[str, int]) -> MemoryBlock:
    """The block less what is left to be counted there, of which that much is done."""
    if block.nodes.mask != where:
        return block
    common = min(block.size, left.get(block.resource, 0))
    if common:
        left[block.resource] -= common
    return replace(block, size=block.size - common)
