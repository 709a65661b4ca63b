"""The NRI plugin: containers get their CPUs from corelane before their first instruction.

NRI (Node Resource Interface) is how containerd from 1.7 and CRI-O from 1.26 ask plugins about containers.
Lowest first: `ttrpc` (bytes in, frames and calls out), `messages` (field numbers), `values`, `plugin` (bytes
in, events out; answers in, bytes out), `acting_lock` and `connection` (the service that an agent runs).
"""
