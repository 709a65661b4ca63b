"""Cases for kube-scheduler's own plugins, and the program that records their answers."""
