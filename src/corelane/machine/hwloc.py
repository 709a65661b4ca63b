"""Machines from hwloc's XML (`lstopo FILE.xml`), versions 1 to 3 of the format."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from corelane.cpuset import CPUSet, CPUSetError, bits, parse_hex
from corelane.machine import model
from corelane.machine.cpu_table import NodeFacts, TableRow, assemble
from corelane.machine.model import Device, Machine, MachineError, device_kind

_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")


@dataclass(frozen=True, slots=True)
class _Group:
    id: int | None
    mask: int

    @property
    def lowest(self) -> int:
        return (self.mask & -self.mask).bit_length() - 1


@dataclass(slots=True)
class _Found:
    """Objects that a walk has met so far."""

    source: str
    cpus: list[int] = field(default_factory=list)
    groups: dict[str, list[_Group]] = field(default_factory=dict)
    nodes: dict[int, NodeFacts] = field(default_factory=dict)
    devices: list[tuple[Element, int]] = field(default_factory=list)


def parse_hwloc(text: str, *, name: str, source: str) -> Machine:
    """The machine; MachineError naming element or attribute when the text is no such XML.

    hwloc keeps neither the bound drivers nor isolated and tickless CPUs.
    """
    root = _parse(text, source)
    walk = _Found(source)
    for child in root.iterfind("object"):
        _walk(child, 0, walk)
    host = root.find("object/info[@name='HostName']")
    return assemble(
        _rows(walk, _kinds(root, source)),
        name=name if host is None else host.get("value") or name,
        source=source,
        nodes=_nodes(root, walk),
        offline=CPUSet.from_mask(_complete(root, source)),
        devices=sorted(_devices(walk), key=lambda device: device.address),
    )


def _parse(text: str, source: str) -> Element:
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - expat refuses entity bombs since 2.4.1
    except ElementTree.ParseError as error:
        raise MachineError(
            f"{source}: not valid XML: {error}; write it again with `lstopo FILE.xml`"
        ) from None
    if root.tag not in ("topology", "root"):
        raise MachineError(f"{source}: element <{root.tag}> is not hwloc's <topology>; use `lstopo FILE.xml`")
    return root


def _walk(element: Element, near: int, walk: _Found) -> None:
    """Collect an object and those within; `near` is the mask of the closest one that has CPUs."""
    mask = _mask(element, "cpuset", walk.source) or near
    kind, number = _kind(element), _int(element, "os_index")
    if kind == "PU":
        walk.cpus.append(_required(element, number, walk.source))
    elif kind == "PCIDev":
        walk.devices.append((element, near))
    elif kind == "NUMANode":
        node = _required(element, number, walk.source)
        walk.nodes[node] = NodeFacts(_int(element, "local_memory") or 0, _hugepages(element))
    elif kind == "Machine":
        walk.groups["Memory"] = [_Group(_int(element, "local_memory"), mask)]
    walk.groups.setdefault(kind, []).append(_Group(number, mask))
    for child in element.iterfind("object"):
        _walk(child, mask, walk)


def _kind(element: Element) -> str:
    """Version 1 has Socket, and Cache of depth 3."""
    kind = element.get("type", "")
    if kind == "Cache":
        return f"L{element.get('depth', '')}Cache"
    return {"Socket": "Package", "Node": "NUMANode"}.get(kind, kind)


def _mask(element: Element, attribute: str, source: str) -> int:
    """Words of 32 CPUs, a word of zeros left empty; f...f means all there can be."""
    text = element.get(attribute, "")
    words = [word.strip() or "0" for word in text.split(",") if "f...f" not in word]
    try:
        return parse_hex(",".join(words)) if text and words else 0
    except CPUSetError as error:
        raise MachineError(f"{source}: attribute {attribute} of {_what(element)}: {error}") from None


def _int(element: Element, attribute: str) -> int | None:
    text = element.get(attribute, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _required(element: Element, number: int | None, source: str) -> int:
    if number is None or number >= 1 << 20:
        raise MachineError(f"{source}: {_what(element)} has no usable attribute os_index")
    return number


def _what(element: Element) -> str:
    return f"<{element.tag} type={element.get('type', '')!r} gp_index={element.get('gp_index', '')!r}>"


def _rows(walk: _Found, kind: Mapping[int, str]) -> Iterator[TableRow]:
    cores, dies = _groups(walk, "Core"), _groups(walk, "Die")
    l3 = _groups(walk, "L3Cache")
    numa = _numa(walk)
    sockets = _sockets(walk, numa)
    distinct = len({group.id for group in l3.values()} - {None}) == len({*l3.values()})
    for cpu in walk.cpus:
        core, cache, die = cores.get(cpu), l3.get(cpu), dies.get(cpu)
        yield TableRow(
            cpu=cpu,
            core=core.lowest if core else None,
            core_id=core.id if core else None,
            socket=sockets.get(cpu),
            numa=numa.get(cpu),
            l3=None if cache is None else cache.id if distinct else cache.lowest,
            die=(die.id or 0) if die else 0,
            kind=kind.get(cpu, ""),
        )


def _groups(walk: _Found, kind: str) -> dict[int, _Group]:
    """The group of a kind that each CPU is in."""
    return {cpu: group for group in reversed(walk.groups.get(kind, [])) for cpu in bits(group.mask)}


def _sockets(walk: _Found, numa: Mapping[int, int]) -> dict[int, int]:
    """The packages' os_index; without distinct ones, numbers as docs/machines.md has them for sysfs."""
    packages = sorted(walk.groups.get("Package", []), key=lambda group: group.lowest)
    ids = [group.id for group in packages]
    if set(ids) == {None} and len(packages) == len(walk.groups.get("Core", [])) > len({*numa.values()}):
        return dict(numa)
    usable = None not in ids and len({*ids}) == len(ids)
    return {
        cpu: group.id if usable and group.id is not None else index
        for index, group in enumerate(packages)
        for cpu in bits(group.mask)
    }


def _numa(walk: _Found) -> dict[int, int]:
    """The node of each CPU that is in one. A node without CPUs has its parent's, so the narrowest counts."""
    nodes = sorted(walk.groups.get("NUMANode", []), key=lambda group: (group.mask.bit_count(), group.id))
    place: dict[int, int] = {}
    for group in nodes:
        for cpu in bits(group.mask):
            place.setdefault(cpu, group.id or 0)
    return place or dict.fromkeys(walk.cpus, 0)


def _hugepages(node: Element) -> dict[int, int]:
    """Pools by page size in KiB, without the base page, which is the smallest."""
    pages = [(_int(page, "size") or 0, _int(page, "count") or 0) for page in node.iterfind("page_type")]
    return {size // 1024: count for size, count in sorted(pages)[1:]}


def _nodes(root: Element, walk: _Found) -> dict[int, NodeFacts]:
    """With their distances; without any NUMA node the machine's memory is that of node 0."""
    if not walk.nodes:
        memory = walk.groups.get("Memory", [_Group(0, 0)])[0].id or 0
        return {0: NodeFacts(memory)}
    rows = _distances(root)
    return {
        node: NodeFacts(facts.memory, facts.hugepages, rows[node] if set(rows) == set(walk.nodes) else None)
        for node, facts in walk.nodes.items()
    }


def _distances(root: Element) -> dict[int, dict[int, int]]:
    """The first latency matrix between NUMA nodes (versions 2 and 3), by os_index."""
    for matrix in root.iterfind("distances2"):
        ids = _numbers(matrix, "indexes")
        values = _numbers(matrix, "u64values")
        if (
            matrix.get("type") == "NUMANode"
            and matrix.get("indexing") == "os"
            and len(values) == len(ids) ** 2
        ):
            return {
                node: dict(zip(ids, values[row * len(ids) :], strict=False)) for row, node in enumerate(ids)
            }
    return {}


def _numbers(matrix: Element, tag: str) -> list[int]:
    words = " ".join(element.text or "" for element in matrix.iterfind(tag)).split()
    return [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 10]


def _kinds(root: Element, source: str) -> dict[int, str]:
    """From the CPU kinds' core type or, without one, their highest frequency."""
    kinds = [(kind, _mask(kind, "cpuset", source)) for kind in root.iterfind("cpukind")]
    values = {index: _performance(kind) for index, (kind, _) in enumerate(kinds)}
    letters = model.core_kinds(values)
    return {cpu: letters[index] for index, (_, mask) in enumerate(kinds) for cpu in bits(mask)}


def _performance(kind: Element) -> int:
    infos = {info.get("name"): info.get("value") or "" for info in kind.iterfind("info")}
    core_type = {"IntelCore": 1000, "IntelAtom": 1}.get(infos.get("CoreType", ""), 0)
    return core_type or next(
        (
            int(value)
            for key in ("LinuxCapacity", "FrequencyMaxMHz")
            if (value := infos.get(key, "")).isdecimal()
        ),
        0,
    )


def _complete(root: Element, source: str) -> int:
    machine = root.find("object")
    return 0 if machine is None else _mask(machine, "complete_cpuset", source)


def _devices(walk: _Found) -> Iterator[Device]:
    numa = _numa(walk)
    for element, near in walk.devices:
        match = _PCI_TYPE.match(element.get("pci_type", ""))
        kind = device_kind(int(match[1], 16)) if match else None
        if match and kind:
            nodes = {numa[cpu] for cpu in bits(near) if cpu in numa}
            yield Device(
                address=element.get("pci_busid", ""),
                kind=kind,
                numa=nodes.pop() if len(nodes) == 1 else None,
                local_cpus=CPUSet.from_mask(near),
                pci_class=f"0x{match[1]}00",
                vendor=f"0x{match[2]}",
                product=f"0x{match[3]}",
            )
