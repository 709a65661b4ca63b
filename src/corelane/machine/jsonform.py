"""A machine as plain JSON values with stable keys, and back. CPU sets are list strings."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from corelane.cpuset import CPUSet
from corelane.machine.model import CPU, IRQ, Device, Machine, MachineError, NUMANode

_T = TypeVar("_T")
_SETS = ("online", "offline", "allowed", "isolated", "nohz_full", "managed_irq")
_CPU_KEYS = tuple(field.name for field in fields(CPU))
_OPTIONAL = frozenset({"kind", "max_khz", "capacity", "uncore"})


def to_dict(machine: Machine) -> dict[str, Any]:
    """The machine as JSON values; `from_dict` brings an equal one back."""
    return {
        "name": machine.name,
        "source": machine.source,
        **{name: str(getattr(machine, name)) for name in _SETS},
        "usable": str(machine.usable),
        "counts": {
            "cpus": len(machine.cpus),
            "cores": len(machine.core_masks),
            "l3": len(machine.l3_masks),
            "numa": len(machine.nodes),
            "sockets": len(machine.socket_masks),
        },
        "cpus": [{key: getattr(cpu, key) for key in _CPU_KEYS} for cpu in machine.cpus],
        "nodes": [_node_to_dict(node) for node in machine.nodes],
        "devices": [_device_to_dict(device) for device in machine.devices],
        "irqs": [{"number": irq.number, "cpus": str(irq.cpus), "name": irq.name} for irq in machine.irqs],
        "notes": list(machine.notes),
    }


def _node_to_dict(node: NUMANode) -> dict[str, Any]:
    return {
        "id": node.id,
        "cpus": str(node.cpus),
        "memory": node.memory,
        "hugepages": {str(size): count for size, count in sorted(node.hugepages.items())},
        "distances": {str(other): distance for other, distance in sorted(node.distances.items())},
    }


def _device_to_dict(device: Device) -> dict[str, Any]:
    values = {field.name: getattr(device, field.name) for field in fields(Device)}
    return {**values, "local_cpus": str(device.local_cpus)}


def from_dict(data: Any, *, where: str = "machine") -> Machine:
    """The machine of `to_dict`'s values; MachineError naming `where` and the field when they are not."""
    try:
        return _machine(data)
    except MachineError as error:
        raise MachineError(f"{where}: {error}; write it again with `corelane topology -o json`") from None


def _machine(data: Any) -> Machine:
    body = _as(dict, data, "machine")
    sets = {name: _cpuset(body.get(name, ""), name) for name in _SETS}
    return Machine(
        name=_get(str, body, "name", "machine"),
        cpus=tuple(sorted(_each(body, "cpus", _cpu), key=lambda cpu: cpu.id)),
        nodes=tuple(sorted(_each(body, "nodes", _node), key=lambda node: node.id)),
        devices=tuple(_each(body, "devices", _device)),
        irqs=tuple(_each(body, "irqs", _irq)),
        notes=tuple(_as(str, note, "notes") for note in _as(list, body.get("notes", []), "notes")),
        source=_as(str, body.get("source", ""), "source"),
        **sets,
    )


def _each(body: Mapping[str, Any], key: str, make: Callable[[Mapping[str, Any], str], _T]) -> list[_T]:
    items = _as(list, body.get(key, []), key)
    return [make(_as(dict, item, f"{key}[{i}]"), f"{key}[{i}]") for i, item in enumerate(items)]


def _cpu(item: Mapping[str, Any], where: str) -> CPU:
    numbers = {key: _get(int, item, key, where) for key in _CPU_KEYS if key not in _OPTIONAL}
    return CPU(
        **numbers,
        kind=_as(str, item.get("kind", ""), f"{where}.kind"),
        max_khz=_as(int, item.get("max_khz", 0), f"{where}.max_khz"),
        capacity=_as(int, item.get("capacity", 0), f"{where}.capacity"),
        uncore=None if item.get("uncore") is None else _as(int, item["uncore"], f"{where}.uncore"),
    )


def _node(item: Mapping[str, Any], where: str) -> NUMANode:
    return NUMANode(
        id=_get(int, item, "id", where),
        cpus=_cpuset(item.get("cpus", ""), f"{where}.cpus"),
        memory=_as(int, item.get("memory", 0), f"{where}.memory"),
        hugepages=_int_map(item.get("hugepages", {}), f"{where}.hugepages"),
        distances=_int_map(item.get("distances", {}), f"{where}.distances"),
    )


def _device(item: Mapping[str, Any], where: str) -> Device:
    numa = item.get("numa")
    texts = {
        key: _as(str, item.get(key, ""), f"{where}.{key}")
        for key in ("pci_class", "vendor", "product", "driver")
    }
    return Device(
        address=_get(str, item, "address", where),
        kind=_get(str, item, "kind", where),
        numa=None if numa is None else _as(int, numa, f"{where}.numa"),
        local_cpus=_cpuset(item.get("local_cpus", ""), f"{where}.local_cpus"),
        **texts,
    )


def _irq(item: Mapping[str, Any], where: str) -> IRQ:
    return IRQ(
        number=_get(int, item, "number", where),
        cpus=_cpuset(item.get("cpus", ""), f"{where}.cpus"),
        name=_as(str, item.get("name", ""), f"{where}.name"),
    )


def _as(kind: type[_T], value: Any, where: str) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise MachineError(f"field {where} must be {kind.__name__}, not {type(value).__name__}")
    return value


def _get(kind: type[_T], item: Mapping[str, Any], key: str, where: str) -> _T:
    if key not in item:
        raise MachineError(f"field {where}.{key} is missing")
    return _as(kind, item[key], f"{where}.{key}")


def _cpuset(value: Any, where: str) -> CPUSet:
    try:
        return CPUSet.parse(_as(str, value, where))
    except MachineError:
        raise
    except ValueError as error:
        raise MachineError(f"field {where} is not a CPU list: {error}") from None


def _int_map(value: Any, where: str) -> dict[int, int]:
    items = _as(dict, value, where).items()
    if not all(isinstance(key, str) and key.isascii() and key.isdigit() for key, _ in items):
        raise MachineError(f"field {where} must have whole numbers as keys")
    return {int(key): _as(int, count, f"{where}.{key}") for key, count in items}
