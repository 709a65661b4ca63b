"""The cluster as the scheduler sees it: nodes, pods, other objects, and columns."""
