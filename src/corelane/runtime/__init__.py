"""Ways to reach containers: for now, local processes under a shim."""
