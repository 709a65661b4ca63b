"""What the hardware is: CPUs, cores, caches, sockets, NUMA nodes, and where to read them from."""
