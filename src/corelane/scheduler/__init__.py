"""The cluster scheduler: chooses the node and the CPUs of a pod, and binds it in one call."""

from corelane.scheduler.framework.profile import DEFAULT_NAME
from corelane.scheduler.scheduler import Scheduler, SchedulerReporter

__all__ = ["DEFAULT_NAME", "Scheduler", "SchedulerReporter"]
