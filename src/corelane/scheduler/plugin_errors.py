"""Errors that plugins raise in an attempt: the pod is tried again later, as after upstream's status Error."""

from collections.abc import Callable, Iterator

from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.decisions import DecisionReporter
from corelane.scheduler.failure_reports import FailureReports
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Instruction
from corelane.scheduler.queue import SchedulingQueue, Waiting
from corelane.scheduler.raising import described, raised_by


class PluginErrors:
    """Ends attempts in which a plugin raised an error."""

    def __init__(
        self,
        cluster: NodeCache,
        queue: SchedulingQueue,
        reports: FailureReports,
        decisions: DecisionReporter,
    ) -> None:
        self._cluster, self._queue = cluster, queue
        self._reports, self._decisions = reports, decisions

    def ended(
        self, waiting: Waiting, profile: Profile, error: Exception, now: float
    ) -> Iterator[Instruction]:
        """Have the pod tried again after its back-off, with the error as its condition.

        An attempt only reads the core's state. An error that no plugin raised is a fault of the core: it is
        raised again.
        """
        self._cluster.points.failed()
        plugin = raised_by(error, profile)
        if not plugin:
            raise error
        self._decisions.attempt_failed(now, waiting, plugin, error)
        self._queue.retry(waiting, now)
        yield from self._reports.explain(waiting, now, "SchedulerError", described(plugin, error))

    def refused(self, waiting: Waiting, profile: Profile, error: Exception, now: float) -> None:
        """Note that a pod of another scheduler's is not bound. Raises an error that no plugin raised."""
        self._cluster.points.failed()
        plugin = raised_by(error, profile)
        if not plugin:
            raise error
        self._decisions.attempt_failed(now, waiting, plugin, error)
        self._decisions.binding_ended(now, waiting.uid, "released", described(plugin, error))

    def observe(self, profile: Profile, hook: Callable[[], None]) -> None:
        """Call a hook, for which plugins may be asked once more; their errors are reported once."""
        try:
            hook()
        except Exception as error:
            plugin = raised_by(error, profile)
            if not plugin:
                raise
            self._cluster.faults.add(plugin, "explain", error)
