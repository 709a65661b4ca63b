"""Koordinator's NodeNUMAResource plugin, bit for bit: `allocator.take`, and `take_on` given NUMA nodes."""
