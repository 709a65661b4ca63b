"""The fingerprint of a set of pods, by which an exporter says which pods its zones count.

Upstream: `podfingerprint` of k8stopologyawareschedwg (v0.2.2): XXH64 of the sorted hashes of all pods.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_PREFIX: Final = "pfp0v001"
_MASK: Final = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods given by namespace and name, in any order."""
    hashes = sorted(_pod_hash(namespace, name) for namespace, name in pods)
    total = xxh64(b"".join(one.to_bytes(8, "little") for one in hashes))
    return f"{_PREFIX}{total:016x}"


@lru_cache(maxsize=1 << 16)
def _pod_hash(namespace: str, name: str) -> int:
    return xxh64(name.encode(), xxh64(namespace.encode()))


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 hash of bytes."""
    length, at = len(data), 0
    if length >= 32:
        total, at = _stripes(data, seed)
    else:
        total = seed + _P5 & _MASK
    total = total + length & _MASK
    while at + 8 <= length:
        total ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        total = _rotated(total, 27) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= length:
        total ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        total = _rotated(total, 23) * _P2 + _P3 & _MASK
        at += 4
    for byte in data[at:]:
        total ^= byte * _P5 & _MASK
        total = _rotated(total, 11) * _P1 & _MASK
    return _avalanche(total)


def _stripes(data: bytes, seed: int) -> tuple[int, int]:
    """The hash of all whole 32-byte stripes, and where they end."""
    lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed, seed - _P1 & _MASK]
    end = len(data) - len(data) % 32
    for at in range(0, end, 32):
        for lane in range(4):
            word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
            lanes[lane] = _round(lanes[lane], word)
    total = sum(_rotated(one, bits) for one, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for one in lanes:
        total = (total ^ _round(0, one)) * _P1 + _P4 & _MASK
    return total, end


def _round(total: int, word: int) -> int:
    return _rotated(total + word * _P2 & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _avalanche(total: int) -> int:
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32
