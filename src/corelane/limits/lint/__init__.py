"""Lint of manifests: what CPU and memory settings in them cost, refuse or promise in vain."""
