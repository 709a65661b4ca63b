"""The kubelet of one node over HTTPS: its pods, its configuration, and how to reach and trust it."""
