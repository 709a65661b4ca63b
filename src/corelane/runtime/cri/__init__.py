"""The container runtime behind a CRI socket: a client, and the `Runtime` of a node with a kubelet."""
