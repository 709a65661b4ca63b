"""Why the scheduler decided as it did: decisions as they were taken, or taken again. Imported by name."""
