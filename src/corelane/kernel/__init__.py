"""Linux interfaces as files: cgroups, /proc, and the one atomic file write. Everything is rooted at a path."""
