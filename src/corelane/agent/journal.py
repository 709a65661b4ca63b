"""The agent's log: what it did to pods and CPUs, and the alarm for a promise that could not be kept."""

from dataclasses import fields
from typing import Final

import structlog

from corelane.agent.pods import Ended, PodPlan, Reason
from corelane.agent.reporter import Reporter
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeConfig, PoolOptions
from corelane.reasons import sentence

_DEFAULTS: Final = PoolOptions()


class Journal(Reporter):
    """Writes to the log and counts the refusals after binding, the failure that corelane exists to end."""

    def __init__(self, node: str) -> None:
        self.refused_after_binding = 0
        self._log = structlog.get_logger("corelane.agent").bind(node=node)

    def admitted(self, plan: PodPlan, decision: Decision) -> None:
        why = [f"{reason.container}: {sentence(reason)}" for reason in decision.reasons]
        cpus = {name: str(found) for name, found in decision.assignments.items()}
        self._log.info("pod admitted", pod=plan.key, cpus=cpus, repicked=decision.repicked, why=why)

    def adopted(self, plan: PodPlan, runs: int) -> None:
        self._log.info("pod taken over", pod=plan.key, running=runs)

    def refused(self, plan: PodPlan, reason: Reason) -> None:
        if not plan.lane_bound:
            self._log.warning("pod refused", pod=plan.key, reason=reason.reason, message=reason.message)
            return
        self.refused_after_binding += 1
        self._log.error(
            "pod refused after corelane's scheduler bound it",
            pod=plan.key,
            reason=reason.reason,
            message=reason.message,
            refused_after_binding=self.refused_after_binding,
        )

    def untouchable(self, plan: PodPlan, reason: Reason) -> None:
        self._log.error(
            "running pod does not fit the ledger and is left as it is", pod=plan.key, why=reason.message
        )

    def waiting(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        self._log.info("container waits for its CPUs", pod=plan.key, container=container, cpus=str(cpus))

    def started(self, plan: PodPlan, container: str, attempt: int, cpus: CPUSet) -> None:
        self._log.info(
            "container started", pod=plan.key, container=container, attempt=attempt, cpus=str(cpus)
        )

    def start_failed(self, plan: PodPlan, container: str, reason: Reason) -> None:
        self._log.warning("container not started", pod=plan.key, container=container, why=reason.message)

    def ended(self, plan: PodPlan, container: str, ended: Ended) -> None:
        self._log.info("container ended", pod=plan.key, container=container, exit_code=ended.exit_code)

    def stop_failed(self, plan: PodPlan, container: str, message: str) -> None:
        self._log.error("container cannot be ended", pod=plan.key, container=container, why=message)

    def pinned(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        self._log.info("container moved", pod=plan.key, container=container, cpus=str(cpus))

    def pin_failed(self, plan: PodPlan, container: str, cpus: CPUSet, message: str) -> None:
        self._log.warning(
            "container not moved", pod=plan.key, container=container, cpus=str(cpus), why=message
        )

    def confirmed(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        self._log.debug("kernel confirms", pod=plan.key, container=container, cpus=str(cpus))

    def drifted(self, plan: PodPlan, container: str, cpus: CPUSet, allowed: CPUSet) -> None:
        self._log.warning(
            "container drifted", pod=plan.key, container=container, cpus=str(cpus), allowed=str(allowed)
        )

    def ledger_lost(self, path: str, backup: str, why: str) -> None:
        self._log.error("ledger damaged; made anew from what runs", path=path, kept_as=backup, why=why)

    def setting_refused(self, text: str) -> None:
        self._log.warning("a setting of the node is left out; what held before still does", why=text)

    def kubelet_unreadable(self, text: str) -> None:
        self._log.warning("kubelet's CPU state", why=text)

    def configured(self, config: NodeConfig) -> None:
        own = {one.name: getattr(config.pools, one.name) for one in fields(PoolOptions)}
        told = {name: str(value) for name, value in own.items() if value != getattr(_DEFAULTS, name)}
        self._log.info("node settings", policy=config.policy, pools=told)

    def ledger_changed(self, problem: str) -> None:
        self._log.warning("ledger does not fit this machine any more", problem=problem)

    def checkpoint_failed(self, path: str, why: str) -> None:
        self._log.error("ledger cannot be written; nothing is changed until it can", path=path, why=why)

    def api_failed(self, what: str, error: Exception) -> None:
        self._log.warning("API server", what=what, error=str(error))

    def malformed(self, text: str) -> None:
        self._log.error("object left out", why=text)

    def malfunction(self, what: str, error: BaseException) -> None:
        self._log.error("unexpected failure", what=what, exc_info=error)
