"""The node daemon: takes in pods, pins their containers, reads back what the kernel really did."""
