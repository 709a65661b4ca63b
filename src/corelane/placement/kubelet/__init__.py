"""The kubelet's CPU manager, bit for bit: `picker.take` for what it picks, `steps.Steps` for why."""
