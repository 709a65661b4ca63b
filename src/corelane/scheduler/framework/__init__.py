"""The scheduling framework: extension points, and what a plugin is given. Modules are imported by name."""
