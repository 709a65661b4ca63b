"""CFS bandwidth control as a model: what the kernel would do, event by event, and what it would count."""
