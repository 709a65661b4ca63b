"""The node daemon: admits pods, starts and pins their containers, confirms their CPUs with the kernel."""
