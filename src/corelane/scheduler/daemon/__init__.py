"""What a scheduler that runs as a daemon has around it: health, metrics, log."""
