"""What holds for all tests."""

import os

from hypothesis import settings

# A deadline measures the machine, not the code: CI's two cores are shared.
settings.register_profile("corelane", deadline=None)
settings.load_profile("corelane")

# Tests run side by side on one machine, each with instances of its own.
os.environ.setdefault("CORELANE_UP_OTHER_INSTANCES", "ignore")
