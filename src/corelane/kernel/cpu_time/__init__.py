"""CPU time of containers as the kernel counts it, and what their threads waited for."""
