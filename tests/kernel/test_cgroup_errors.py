"""Errors of cgroup file systems are OSErrors: what handles those handles these."""

import errno
from pathlib import Path

from corelane.kernel.cgroupfs import CgroupError


def test_a_cgroup_error_is_an_os_error_with_number_and_explanation():
    path = Path("/sys/fs/cgroup/cpuset/x/cpuset.cpus")
    error = CgroupError("write '9' to", path, OSError(errno.EINVAL, "Invalid argument"))
    assert isinstance(error, OSError)
    assert (error.errno, error.path) == (errno.EINVAL, path)
    assert "EINVAL: some of these CPUs do not exist" in str(error)
    assert error.strerror in str(error)
