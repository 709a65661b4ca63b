"""CPUs of a node's containers: admission, the ledger, moves, and what the kernel confirms. No I/O.

Complete by itself beside a kubelet; where corelane starts the containers itself, `lifecycle` uses it.
"""
