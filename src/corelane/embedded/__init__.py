"""All that only `corelane up` and `corelane demo` need: a leaf, without which everything else works.

The API server serves what pods of `up` can use, and no more; `housekeeping` keeps its objects in order,
`pods` runs the pods of a node, `containers` their processes, and `up` starts all of it in one process.
"""
