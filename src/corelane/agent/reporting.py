"""Hooks for what can be observed of an agent, and the log that uses them."""

from dataclasses import fields
from typing import Final

import structlog

from corelane.agent.pod_records import ContainerExit, PodPlan, StatusReason
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeConfig, PoolOptions
from corelane.reasons import sentence

_DEFAULTS: Final = PoolOptions()


class AgentReporter:
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""

    def admitted(self, plan: PodPlan, decision: Decision) -> None:
        """A pod was admitted by a decision."""

    def adopted(self, plan: PodPlan, runs: int) -> None:
        """A pod of an earlier run of the agent was adopted, with that many live containers."""

    def refused(self, plan: PodPlan, reason: StatusReason) -> None:
        """A pod was rejected. Alarm on it where `plan.bound_by_corelane`: the scheduler chose this node."""

    def left_unmanaged(self, plan: PodPlan, reason: StatusReason) -> None:
        """The ledger cannot hold a running pod's CPUs; its containers are left unchanged."""

    def waiting(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        """A container waits to start until other containers have left its CPUs."""

    def started(self, plan: PodPlan, container: str, attempt: int, cpus: CPUSet) -> None:
        """A container was started."""

    def start_failed(self, plan: PodPlan, container: str, reason: StatusReason) -> None:
        """A container could not be started."""

    def ended(self, plan: PodPlan, container: str, ended: ContainerExit) -> None:
        """A container's run ended."""

    def stop_failed(self, plan: PodPlan, container: str, message: str) -> None:
        """A container could not be stopped; the stop is retried."""

    def pinned(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        """A running container was moved to these CPUs."""

    def pin_failed(self, plan: PodPlan, container: str, cpus: CPUSet, message: str) -> None:
        """A running container could not be moved to these CPUs; the move is retried."""

    def confirmed(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        """The kernel confines a container to its CPUs."""

    def drifted(self, plan: PodPlan, container: str, cpus: CPUSet, allowed: CPUSet) -> None:
        """The kernel allows a container CPUs that were not applied; its CPUs are applied again."""

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
        """The ledger could not be written; no instruction is carried out until it is."""

    def checkpointed(self, generation: int, seconds: float) -> None:
        """The ledger was written to disk."""

    def api_failed(self, what: str, error: Exception) -> None:
        """A write to the API server failed; it is retried unless it is obsolete."""

    def malformed(self, text: str) -> None:
        """An object of this node cannot be decoded and is ignored."""

    def malfunction(self, what: str, error: BaseException) -> None:
        """An unexpected error; the agent continues."""


class LogReporter(AgentReporter):
    """Writes the log, and counts rejections after binding, the failure that corelane exists to end."""

    def __init__(self, node: str) -> None:
        self.refused_after_binding = 0
        self._log = structlog.get_logger("corelane.agent").bind(node=node)

    def admitted(self, plan: PodPlan, decision: Decision) -> None:
        reasons = [f"{reason.container}: {sentence(reason)}" for reason in decision.reasons]
        cpus = {name: str(cpus) for name, cpus in decision.assignments.items()}
        self._log.info(
            "pod admitted", pod=plan.key, cpus=cpus, reallocated=decision.repicked, reasons=reasons
        )

    def adopted(self, plan: PodPlan, runs: int) -> None:
        self._log.info("running pod adopted", pod=plan.key, running=runs)

    def refused(self, plan: PodPlan, reason: StatusReason) -> None:
        if not plan.bound_by_corelane:
            self._log.warning("pod rejected", pod=plan.key, reason=reason.reason, message=reason.message)
            return
        self.refused_after_binding += 1
        self._log.error(
            "pod rejected after corelane's scheduler bound it",
            pod=plan.key,
            reason=reason.reason,
            message=reason.message,
            refused_after_binding=self.refused_after_binding,
        )

    def left_unmanaged(self, plan: PodPlan, reason: StatusReason) -> None:
        self._log.error(
            "running pod left unchanged: its CPUs conflict with the ledger", pod=plan.key, why=reason.message
        )

    def waiting(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        self._log.info("container waiting for CPUs", pod=plan.key, container=container, cpus=str(cpus))

    def started(self, plan: PodPlan, container: str, attempt: int, cpus: CPUSet) -> None:
        self._log.info(
            "container started", pod=plan.key, container=container, attempt=attempt, cpus=str(cpus)
        )

    def start_failed(self, plan: PodPlan, container: str, reason: StatusReason) -> None:
        self._log.warning("container start failed", pod=plan.key, container=container, why=reason.message)

    def ended(self, plan: PodPlan, container: str, ended: ContainerExit) -> None:
        self._log.info("container ended", pod=plan.key, container=container, exit_code=ended.exit_code)

    def stop_failed(self, plan: PodPlan, container: str, message: str) -> None:
        self._log.error("container stop failed", pod=plan.key, container=container, why=message)

    def pinned(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        self._log.info("container moved", pod=plan.key, container=container, cpus=str(cpus))

    def pin_failed(self, plan: PodPlan, container: str, cpus: CPUSet, message: str) -> None:
        self._log.warning(
            "container move failed", pod=plan.key, container=container, cpus=str(cpus), why=message
        )

    def confirmed(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        self._log.debug("CPUs confirmed by the kernel", pod=plan.key, container=container, cpus=str(cpus))

    def drifted(self, plan: PodPlan, container: str, cpus: CPUSet, allowed: CPUSet) -> None:
        self._log.warning(
            "container drifted", pod=plan.key, container=container, cpus=str(cpus), allowed=str(allowed)
        )

    def ledger_lost(self, path: str, backup: str, why: str) -> None:
        self._log.error(
            "ledger corrupt; rebuilt from the running containers", path=path, renamed_to=backup, why=why
        )

    def setting_refused(self, text: str) -> None:
        self._log.warning("invalid node setting; last valid value stays in effect", why=text)

    def kubelet_unreadable(self, text: str) -> None:
        self._log.warning("kubelet CPU manager state unreadable", why=text)

    def configured(self, config: NodeConfig) -> None:
        options = {option.name: getattr(config.pools, option.name) for option in fields(PoolOptions)}
        changed = {name: str(value) for name, value in options.items() if value != getattr(_DEFAULTS, name)}
        self._log.info("node settings", policy=config.policy, pools=changed)

    def ledger_changed(self, problem: str) -> None:
        self._log.warning("ledger entry does not fit the machine or settings any more", problem=problem)

    def checkpoint_failed(self, path: str, why: str) -> None:
        self._log.error(
            "state file write failed; no pod is started, moved or stopped until the ledger is written",
            path=path,
            why=why,
        )

    def api_failed(self, what: str, error: Exception) -> None:
        self._log.warning("API request failed", what=what, error=str(error))

    def malformed(self, text: str) -> None:
        self._log.error("malformed object ignored", why=text)

    def malfunction(self, what: str, error: BaseException) -> None:
        self._log.error("unexpected error", what=what, exc_info=error)
