"""Koordinator's NodeNUMAResource plugin, bit for bit: `allocator.take`, and `numa.take_on` on NUMA nodes."""
