"""Which CPUs: pure functions from a machine, the free CPUs and a wish to a set of CPUs and its reasons."""
