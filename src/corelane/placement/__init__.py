"""Which CPUs: pure functions from a machine, the free CPUs and a request to a set of CPUs.

`kubelet` and `koordinator` answer bit for bit as upstream, `optimal` is ours; what they share is beside them:
machines as masks (`topology`), NUMA hints and their merge (`hints`, `topologymanager`), even shares
(`balance`).
"""
