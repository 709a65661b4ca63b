"""Linux interfaces as files: cgroups, /proc, the one atomic file write. Everything is rooted at a path."""
