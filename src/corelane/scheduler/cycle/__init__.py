"""One attempt to place a pod: plan, vectors, finalists, and the result. Modules are imported by name."""
