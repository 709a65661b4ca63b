"""Advice on CPU limits: options from measurements, what a pod requests, and policy; each with its price."""
