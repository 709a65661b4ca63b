"""What the scheduler knows of pods and nodes. Modules are imported by name."""
