"""A whole cluster as plain values: its objects as they were read, and the CPUs of nodes and containers."""
