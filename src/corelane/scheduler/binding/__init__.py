"""From a claim to a bound pod: claims, bindings under way, preemption. Modules are imported by name."""
