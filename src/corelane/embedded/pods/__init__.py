"""Pods whose containers corelane starts itself: start, stop, restart, status. No I/O."""
