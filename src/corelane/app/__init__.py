"""Composition: what each command starts, with what."""
