"""Errors that plugins raise in an attempt: the pod is tried again later, as after upstream's status Error."""

from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from types import CodeType

from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.decisions import DecisionReporter
from corelane.scheduler.failure_reports import FailureReports
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Instruction
from corelane.scheduler.queue import SchedulingQueue, Waiting


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


def raised_by(error: Exception, profile: Profile) -> str:
    """Return the name of the innermost plugin in whose methods an error was raised; "" without any."""
    plugins, found = {id(plugin): plugin.name for plugin in profile.plugins}, ""
    for frame, _ in walk_tb(error.__traceback__):
        found = plugins.get(id(frame.f_locals.get(_first_argument(frame.f_code))), found)
    return found


def _first_argument(code: CodeType) -> str:
    return code.co_varnames[0] if code.co_argcount else ""


def described(plugin: str, error: Exception) -> str:
    """Return what a plugin raised, and where."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    path = Path(frame.f_code.co_filename)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"plugin {plugin} failed: {text} ({path.parent.name}/{path.name}, line {line})"
