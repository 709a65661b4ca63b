"""The scheduler's own plugins, one module each, with kube-scheduler's names and texts where it has them."""
