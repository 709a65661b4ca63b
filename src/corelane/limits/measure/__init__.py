"""Throttling measured: counters of running containers to rates, and what delays them."""
