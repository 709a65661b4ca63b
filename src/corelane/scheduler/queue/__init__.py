"""Pods without a node: which is tried next, and which wait for what. See `scheduling_queue`."""

from corelane.scheduler.queue.backoff import Backoff
from corelane.scheduler.queue.scheduling_queue import LONGEST_PARKED, SchedulingQueue
from corelane.scheduler.queue.waiting import QueuePlace, Verdict, Waiting

__all__ = ["LONGEST_PARKED", "Backoff", "QueuePlace", "SchedulingQueue", "Verdict", "Waiting"]
