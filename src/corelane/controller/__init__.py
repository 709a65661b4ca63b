"""Cluster-wide facts and the housekeeping that the embedded API server needs."""

from corelane.controller.reporter import ControllerReporter
from corelane.controller.shell import Controller

__all__ = ["Controller", "ControllerReporter"]
