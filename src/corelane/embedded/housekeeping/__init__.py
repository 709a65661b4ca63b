"""Cluster-wide facts, and the housekeeping that only the embedded API server needs."""

from corelane.embedded.housekeeping.controller import Controller, ControllerReporter

__all__ = ["Controller", "ControllerReporter"]
