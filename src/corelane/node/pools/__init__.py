"""Node policy `pools`: Koordinator's classes, each on its pool of CPUs, with either of two allocators.

LSE pods have exclusive CPUs, LSR pods share theirs with BE, LS pods run in the shared pool, and best-effort
pods (BE) on all CPUs but those of LSE. Modules are imported by name.
"""
