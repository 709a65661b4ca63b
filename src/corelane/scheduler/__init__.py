"""The cluster scheduler: chooses the node and the CPUs of a pod, and binds it in one call."""

from corelane.scheduler.daemon.scheduler import Scheduler, SchedulerReporter
from corelane.scheduler.framework.profile import DEFAULT_NAME

__all__ = ["DEFAULT_NAME", "Scheduler", "SchedulerReporter"]
