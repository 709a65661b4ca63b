"""One node's ledger: who owns which CPU, who may come in, and what is left for everybody else."""
