"""Nodes of which only amounts by NUMA node are known, as topology exporters publish them."""
