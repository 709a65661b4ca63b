"""Values to pictures and tables."""
