"""Containers without a container runtime: local processes under a shim, and simulated ones."""
