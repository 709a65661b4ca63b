"""Hooks for what can be observed of an agent, and the log that uses them."""

from dataclasses import fields
from typing import Final

from corelane import structured_log
from corelane.agent.allocation.modes import Mode
from corelane.agent.allocation.outbox import AllocationReporter
from corelane.agent.allocation.records import BoundPod, StatusReason
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.cpuset import CPUSet
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.ledger import Decision
from corelane.reasons import sentence

_DEFAULTS: Final = PoolOptions()


class AgentReporter(AllocationReporter, PublicationReporter):
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""

    def ledger_lost(self, path: str, backup: str, why: str) -> None:
        """The ledger's file is corrupt and renamed to `backup`; it is rebuilt from the running containers."""

    def setting_refused(self, text: str) -> None:
        """A label or annotation of the Node is invalid; its last valid value stays in effect."""

    def kubelet_unreadable(self, text: str) -> None:
        """A kubelet's state file cannot be read; its last content stays in effect."""

    def configured(self, config: NodeConfig) -> None:
        """The node's settings changed."""

    def ledger_changed(self, problem: str) -> None:
        """A ledger entry does not fit the machine or the settings any more."""

    def checkpoint_failed(self, path: str, why: str) -> None:
        """The ledger or the settings could not be written, for another reason than before; it is retried."""

    def mode_changed(self, mode: Mode) -> None:
        """The agent may write other things than before; beside a kubelet only."""

    def source_failed(self, name: str, error: BaseException) -> None:
        """A source of events failed, for the first time or for another reason than before; it is retried."""

    def source_recovered(self, name: str, retries: int) -> None:
        """A source works again, after so many failures in a row."""

    def narrowed(self, container: str, cpus: str, used: str) -> None:
        """A program's tasks may use only a part of its container's CPUs, by their own choice."""

    def malformed(self, text: str) -> None:
        """An object of this node cannot be decoded and is ignored."""


class LogReporter(AgentReporter):
    """Writes the log, and counts rejections after binding, the failure that corelane exists to end."""

    def __init__(self, node: str) -> None:
        self.refused_after_binding = 0
        self.log = structured_log.get_logger("corelane.agent").bind(node=node)

    def admitted(self, pod: BoundPod, decision: Decision) -> None:
        reasons = [f"{reason.container}: {sentence(reason)}" for reason in decision.reasons]
        cpus = {name: str(cpus) for name, cpus in decision.assignments.items()}
        self.log.info("pod admitted", pod=pod.key, cpus=cpus, reallocated=decision.repicked, reasons=reasons)

    def adopted(self, pod: BoundPod, runs: int) -> None:
        self.log.info("running pod adopted", pod=pod.key, running=runs)

    def refused(self, pod: BoundPod, reason: StatusReason) -> None:
        if not pod.bound_by_corelane:
            self.log.warning("pod rejected", pod=pod.key, reason=reason.reason, message=reason.message)
            return
        self.refused_after_binding += 1
        self.log.error(
            "pod rejected after corelane's scheduler bound it",
            pod=pod.key,
            reason=reason.reason,
            message=reason.message,
            refused_after_binding=self.refused_after_binding,
        )

    def left_unmanaged(self, pod: BoundPod, reason: StatusReason) -> None:
        self.log.error(
            "running pod left unchanged: its CPUs conflict with the ledger", pod=pod.key, why=reason.message
        )

    def waiting(self, pod: BoundPod, container: str, cpus: CPUSet) -> None:
        self.log.info("container waiting for CPUs", pod=pod.key, container=container, cpus=str(cpus))

    def pinned(self, pod: BoundPod, container: str, cpus: CPUSet) -> None:
        self.log.info("container moved", pod=pod.key, container=container, cpus=str(cpus))

    def pin_failed(self, pod: BoundPod, container: str, cpus: CPUSet, message: str) -> None:
        self.log.warning(
            "container move failed", pod=pod.key, container=container, cpus=str(cpus), why=message
        )

    def confirmed(self, pod: BoundPod, container: str, cpus: CPUSet) -> None:
        self.log.debug("CPUs confirmed by the kernel", pod=pod.key, container=container, cpus=str(cpus))

    def drifted(self, pod: BoundPod, container: str, cpus: CPUSet, allowed: CPUSet) -> None:
        self.log.warning(
            "container drifted", pod=pod.key, container=container, cpus=str(cpus), allowed=str(allowed)
        )

    def ledger_lost(self, path: str, backup: str, why: str) -> None:
        self.log.error(
            "ledger corrupt; rebuilt from the running containers", path=path, renamed_to=backup, why=why
        )

    def setting_refused(self, text: str) -> None:
        self.log.warning("invalid node setting; last valid value stays in effect", why=text)

    def kubelet_unreadable(self, text: str) -> None:
        self.log.warning("kubelet CPU manager state unreadable", why=text)

    def configured(self, config: NodeConfig) -> None:
        options = {option.name: getattr(config.pools, option.name) for option in fields(PoolOptions)}
        changed = {name: str(value) for name, value in options.items() if value != getattr(_DEFAULTS, name)}
        self.log.info("node settings", policy=config.policy, pools=changed)

    def ledger_changed(self, problem: str) -> None:
        self.log.warning("ledger entry does not fit the machine or settings any more", problem=problem)

    def checkpoint_failed(self, path: str, why: str) -> None:
        self.log.error(
            "state file write failed; no pod is started, moved or stopped until the ledger is written",
            path=path,
            why=why,
        )

    def api_failed(self, what: str, error: Exception) -> None:
        self.log.warning("API request failed", what=what, error=str(error))

    def mode_changed(self, mode: Mode) -> None:
        why = [sentence(reason) for reason in mode.reasons]
        self.log.info("mode", mode=mode.name.value, writes_cpusets_of=mode.writes_cpus.value, why=why)

    def source_failed(self, name: str, error: BaseException) -> None:
        self.log.warning("source failed; it is retried", source=name, why=str(error) or type(error).__name__)

    def source_recovered(self, name: str, retries: int) -> None:
        self.log.info("source works again", source=name, after_failures=retries)

    def zones_owned_by(self, owner: str) -> None:
        self.log.warning("zones of the NodeResourceTopology are written by another program", owner=owner)

    def narrowed(self, container: str, cpus: str, used: str) -> None:
        self.log.info(
            "program narrowed its own affinity; left as it is", container=container, cpus=cpus, used=used
        )

    def malformed(self, text: str) -> None:
        self.log.error("malformed object ignored", why=text)

    def malfunction(self, what: str, error: BaseException) -> None:
        self.log.error("unexpected error", what=what, exc_info=error)
