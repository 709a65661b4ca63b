"""One attempt to place a pod: begin, vectors, finalists, and the result. Modules are imported by name."""
