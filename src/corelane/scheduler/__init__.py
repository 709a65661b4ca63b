"""The cluster scheduler: picks the node and the very CPUs, and binds in one call."""

from corelane.scheduler.core import DEFAULT_NAME, SchedulerCore
from corelane.scheduler.reporter import SchedulerReporter
from corelane.scheduler.shell import Scheduler

__all__ = ["DEFAULT_NAME", "Scheduler", "SchedulerCore", "SchedulerReporter"]
