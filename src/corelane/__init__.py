"""Fine-grained CPU orchestration for Kubernetes."""

__version__ = "0.1.0"
