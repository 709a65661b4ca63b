"""Our own allocator: exact by a lexicographic objective of ten terms (docs/placement.md), with reasons.

`search.place` answers a demand; `search.explain` does so with the runner-up, reasons and remedies;
`search.evaluate` rates any CPUs.
"""
