"""The cluster scheduler: picks the node and the very CPUs, and binds in one call."""
