"""The agent beside a kubelet: its options, its start, and its status."""
