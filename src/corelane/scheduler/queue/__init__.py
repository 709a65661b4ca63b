"""Pods without a node: which is tried next, and which wait for what. See `scheduling_queue`."""

from corelane.scheduler.queue.parked import LONGEST_PARKED
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from corelane.scheduler.queue.waiting import Backoff, QueuePlace, Verdict, Waiting

__all__ = ["LONGEST_PARKED", "Backoff", "QueuePlace", "SchedulingQueue", "Verdict", "Waiting"]
