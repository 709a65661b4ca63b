"""Cluster-wide housekeeping."""
