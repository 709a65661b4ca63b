"""Kubernetes on the wire: slim objects, client, informer, and the translation to plain values."""
