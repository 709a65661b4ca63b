"""Writes to the API server: about the node, its pods and its topology. A failing write stops no other."""
