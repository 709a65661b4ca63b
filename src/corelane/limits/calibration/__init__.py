"""Small experiments in real cgroups, and what the model says of the same: whether they agree."""
