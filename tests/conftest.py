"""What holds for all tests."""

from hypothesis import settings

# A deadline measures the machine, not the code: CI's two cores are shared.
settings.register_profile("corelane", deadline=None)
settings.load_profile("corelane")
