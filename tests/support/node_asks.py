"""Short ways to write pods and machines for tests of placement and node."""

from collections.abc import Mapping

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.machine.spec import parse_spec
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass

LAPTOP = parse_spec("socket:1 numa:1 core:4 smt:2", name="laptop")
DUAL = parse_spec("socket:2 numa:1 core:8 smt:2", name="dual")
QUAD_NUMA = parse_spec("socket:2 numa:2 core:4 smt:2", name="quad-numa")
SINGLE = parse_spec("socket:1 numa:1 core:1 smt:1", name="single")


def container(name: str, milli: int, kind: ContainerKind = ContainerKind.APP) -> ContainerRequest:
    return ContainerRequest(
        name, kind, cpu_request=milli, cpu_limit=milli, memory_request=1 << 30, memory_limit=1 << 30
    )


def init(name: str, milli: int) -> ContainerRequest:
    return container(name, milli, ContainerKind.INIT)


def sidecar(name: str, milli: int) -> ContainerRequest:
    return container(name, milli, ContainerKind.SIDECAR)


def pod(
    uid: str,
    *containers: ContainerRequest,
    qos: QOSClass = QOSClass.GUARANTEED,
    proposal: Mapping[str, str] | None = None,
) -> PodRequest:
    proposed = {name: CPUSet.parse(cpus) for name, cpus in (proposal or {}).items()}
    return PodRequest(uid, "test", uid, qos, containers, proposed)


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


def without(machine: Machine, text: str) -> Machine:
    """The machine with these CPUs gone."""
    return machine.restricted(machine.cpus_mask & ~CPUSet.parse(text).mask)
