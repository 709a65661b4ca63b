"""What the kernel answers EINVAL to, as measured on Linux 6.18."""

import pytest

from corelane.limits.model.bandwidth import KERNELS, MAX_QUOTA_US, CFSLimit, for_kernel, refusal
from corelane.limits.model.clock import MS


@pytest.mark.parametrize(
    ("quota", "period", "burst", "words"),
    [
        (999, 100_000, 0, "999 µs is less than 1 ms"),
        (0, 100_000, 0, "0 ms is less than 1 ms"),
        (1_000, 999, 0, "period of 999 µs is not between 1 ms and 1 s"),
        (1_000, 1_000_001, 0, "period of 1000001 µs is not between"),
        (20_000, 100_000, 20_001, "burst of 20001 µs is more than the quota of 20 ms"),
        (MAX_QUOTA_US + 1, 100_000, 0, "more than 2^44 - 1 µs"),
        (MAX_QUOTA_US, 100_000, 1, "more than 2^44 - 1 µs"),
        (20_000, 100_000, -1, "negative"),
    ],
)
def test_what_the_kernel_refuses_is_refused_and_the_reason_said(quota, period, burst, words):
    assert words in (refusal(quota, period, burst) or "")


@pytest.mark.parametrize(
    ("quota", "period", "burst"),
    [
        (1_000, 100_000, 0),
        (-1, 100_000, 0),
        (1_000, 1_000, 0),
        (1_000, 1_000_000, 0),
        (20_000, 100_000, 20_000),
        (-1, 100_000, 50_000),
        (MAX_QUOTA_US, 100_000, 0),
        (400_000, 100_000, 0),
    ],
)
def test_what_the_kernel_takes_is_taken(quota, period, burst):
    assert refusal(quota, period, burst) is None


@pytest.mark.parametrize(
    ("quota", "period", "refused"),
    [(60_000, 100_000, True), (40_000, 50_000, True), (40_000, 200_000, False)],
)
def test_under_version_1_no_group_may_have_more_of_a_cpu_than_the_one_above(quota, period, refused):
    assert (refusal(quota, period, parent=(50_000, 100_000)) is not None) == refused
    assert refusal(quota, period, parent=(-1, 100_000)) is None


def test_a_burst_is_refused_where_the_kernel_has_none():
    CFSLimit(20 * MS, burst_ns=20 * MS).check(for_kernel("5.14"))
    with pytest.raises(ValueError, match=r"came with 5\.14"):
        CFSLimit(20 * MS, burst_ns=20 * MS).check(for_kernel("5.13"))


@pytest.mark.parametrize(
    ("version", "preset"),
    [
        ("4.14.336-amzn2", "3.17"),
        ("4.18", "4.18"),
        ("5.10", "5.8"),
        ("6.1.0-18-amd64", "5.14"),
        ("7.0", "6.18"),
    ],
)
def test_a_kernel_is_modelled_as_the_newest_preset_not_newer_than_it(version, preset):
    assert for_kernel(version) == KERNELS[preset]


@pytest.mark.parametrize("version", ["3.16", "2.6.32", "six", ""])
def test_other_kernels_are_refused(version):
    with pytest.raises(ValueError, match=r"kernel"):
        for_kernel(version)
