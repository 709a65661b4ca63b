"""Tables, charts and pages of `corelane limits`."""
