"""What a scheduler that runs as a daemon has around it: leader election, health, metrics, log."""
