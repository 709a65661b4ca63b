"""Node policy `pools`: Koordinator's classes, each on its pool of CPUs, with either of two allocators.

LSE pods have CPUs alone, LSR pods lend theirs to best effort, LS pods share what neither holds, and best
effort (BE) runs on everything but LSE's. Modules are imported by name.
"""
