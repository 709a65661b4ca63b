"""What the agent publishes of the kubelet beside it, as its mode allows: settings, and CPUs of its pods."""

from collections.abc import Mapping
from dataclasses import replace

from corelane.agent.allocation.modes import Mode
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.kubelet.configuration import KubeletConfiguration
from corelane.kube.translate import KubeletReport
from corelane.kube.translate.koordlet import PodCPUs
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.node import NodeState
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.recovery.takeover import pinned


def kubelet_report(
    mode: Mode,
    ledger: NodeState,
    configuration: KubeletConfiguration | None,
    checkpoint: Checkpoint | None,
    names: Mapping[str, str],
    *,
    allocatable: CPUSet | None = None,
) -> KubeletReport:
    """Return the report for the node's topology; nothing where the mode reports nothing or nothing is known.

    `configuration` is the last answer of /configz, `checkpoint` holds the kubelet's CPU allocations, and
    `names` are `namespace/name` of pods by UID. `allocatable` CPUs, as podresources has them, are all but the
    kubelet's reserved ones.
    """
    if not mode.reports_kubelet_cpus:
        return KubeletReport()
    if configuration is not None:
        settings = translate.kubelet_settings(configuration, ledger.machine)
    elif checkpoint is not None:
        settings = KubeletSettings("static" if checkpoint.policy == "static" else "none")
    else:
        return KubeletReport()
    if allocatable and settings.policy == "static":
        settings = replace(settings, reserved=ledger.machine.online - allocatable)
    cpusets = kubelet_cpusets(mode, ledger, checkpoint)
    return KubeletReport(settings, tuple(_pod(uid, cpusets[uid], names) for uid in sorted(cpusets)))


def kubelet_cpusets(
    mode: Mode, ledger: NodeState, checkpoint: Checkpoint | None
) -> dict[str, dict[str, CPUSet]]:
    """Return UID to container to the CPUs that the kubelet gave it, by its state file.

    After a takeover the file is empty: the ledger then has what the kubelet's pods keep until they end.
    """
    if not mode.reports_kubelet_cpus:
        return {}
    if checkpoint is not None and checkpoint.policy == "static":
        return {uid: dict(containers) for uid, containers in checkpoint.entries.items() if containers}
    cpusets: dict[str, dict[str, CPUSet]] = {}
    for entry in pinned(ledger):
        if entry.cpus:
            cpusets.setdefault(entry.uid, {})[entry.container] = entry.cpus
    return cpusets


def _pod(uid: str, containers: Mapping[str, CPUSet], names: Mapping[str, str]) -> PodCPUs:
    namespace, _, name = names.get(uid, "").partition("/")
    return PodCPUs(namespace, name, uid, CPUSet(cpu for cpus in containers.values() for cpu in cpus))
