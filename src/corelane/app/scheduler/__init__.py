"""The scheduler as a daemon: its options and its start."""
