"""The cluster scheduler: picks the node and the very CPUs, and binds in one call."""

from corelane.scheduler.core import DEFAULT_NAME, Core
from corelane.scheduler.reporter import Reporter
from corelane.scheduler.shell import Scheduler

__all__ = ["DEFAULT_NAME", "Core", "Reporter", "Scheduler"]
