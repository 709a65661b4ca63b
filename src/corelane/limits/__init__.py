"""CPU limits: a model of the kernel's, measurements, advice and checks of manifests."""
