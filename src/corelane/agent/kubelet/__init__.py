"""What the kubelet beside the agent runs: its pods, its CPU allocations, and the state machine over both."""
