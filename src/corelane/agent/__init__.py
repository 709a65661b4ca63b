"""The agent beside a kubelet: allocates, applies and verifies CPUs of the containers that the kubelet starts.

`node_agent` composes it, `node_sources` observes, `allocation` decides (no I/O), `execution` applies,
`publication` reports, and `kubelet` knows the kubelet's pods and files: `kubelet/kubelet_pods` takes every
event first. `event_loop` is the loop of this agent and of the one in `embedded/pods`, which starts containers
itself.
"""
