"""What kind of device a PCI class code names."""

__all__ = ["kind_of"]

_KINDS = {
    0x00: "other",
    0x01: "storage",
    0x02: "network",
    0x03: "display",
    0x04: "multimedia",
    0x07: "communication",
    0x09: "input",
    0x0A: "docking",
    0x0B: "co-processor",
    0x0C: "serial bus",
    0x0D: "wireless",
    0x0E: "controller",
    0x0F: "satellite",
    0x10: "encryption",
    0x12: "accelerator",
    0x13: "instrument",
    0x40: "co-processor",
    0xFF: "other",
}
_INFINIBAND = (0x0207, 0x0C06)


def kind_of(pci_class: int) -> str | None:
    """A word for a class code of base class and subclass (0x0200); None for what belongs to the chipset.

    That is memory controllers (05), bridges (06), system peripherals (08) and signal processors (11; on
    servers the uncore counters). Source: PCI Code and ID Assignment Specification 1.11.
    """
    return "infiniband" if pci_class in _INFINIBAND else _KINDS.get(pci_class >> 8)
