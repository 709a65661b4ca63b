"""Admission by the rules of Koordinator's scheduler plugin NodeNUMAResource (at a7a1b76b), quirks included.

Nodes of which koordlet publishes CPUs and zones are judged so by the cluster scheduler. An agent's pools are
in `node.pools`.
"""
