"""The agent of `corelane up`, which starts containers itself, as a kubelet does.

It shares allocation, event loop, execution, state files and publication with the agent beside a kubelet, and
adds `lifecycle` (start, stop, restart), registration and heartbeats of the Node, and the pods' status. It has
no NRI, no sources of a kubelet and no lease of an agent.
"""
