"""Formats of names and values: each function gives what is wrong, in upstream's words; [] is fine.

Upstream: apimachinery's `pkg/util/validation` and `pkg/api/validate/content`.
"""

import ipaddress
import re

from corelane.names import explained_format, matches, too_long

_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_FEATURE = r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*"
_CONFIG_KEY_TEXT = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
_ENV_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_FEATURE_TEXT = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' "
    "(e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
_PERCENT = "[0-9]+%"
_PERCENT_TEXT = "a valid percent string must be a numeric string followed by an ending '%'"
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
)
MAX_INT32 = 2**31 - 1


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def config_key(text: str) -> list[str]:
    faults = too_long(text, 253)
    if not matches(_CONFIG_KEY, text):
        faults.append(explained_format(_CONFIG_KEY_TEXT, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in {".", ".."}:
        faults.append(f"must not be '{text}'")
    elif text.startswith(".."):
        faults.append("must not start with '..'")
    return faults


def percentage(text: str) -> list[str]:
    """A whole number of per cent."""
    if matches(_PERCENT, text):
        return []
    return [explained_format(_PERCENT_TEXT, _PERCENT, "1%", "93%")]


def condition_reason(text: str) -> list[str]:
    """Why a condition has its status: one word in camel case."""
    if matches(_REASON, text):
        return []
    examples = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
    return [explained_format(_REASON_TEXT, _REASON, *examples)]


def env_name(text: str) -> list[str]:
    if not text:
        return ["environment variable name must be non-empty"]
    return [] if all(" " <= letter <= "~" and letter != "=" for letter in text) else [_ENV_TEXT]


def header_name(text: str) -> list[str]:
    if matches("[-A-Za-z0-9]+", text):
        return []
    form = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return [explained_format(form, "[-A-Za-z0-9]+", "X-Header-Name")]


def port_name(text: str) -> list[str]:
    faults = too_long(text, 15)
    if not matches("[-a-z0-9]+", text):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        faults.append("must contain at least one letter (a-z)")
    if "--" in text:
        faults.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return faults


def port(number: int) -> list[str]:
    return [] if 1 <= number <= 65535 else [between(1, 65535)]


def port_or_name(value: int | str) -> list[str]:
    return port_name(value) if isinstance(value, str) else port(value)


def user_id(number: int) -> list[str]:
    return [] if 0 <= number <= MAX_INT32 else [between(0, MAX_INT32)]


def sysctl(text: str) -> list[str]:
    if len(text) <= 253 and matches(_SYSCTL, text):
        return []
    return [f"must have at most 253 characters and match regex ^{_SYSCTL}$"]


def feature_name(text: str) -> list[str]:
    if len(text) > 253:
        return [f'invalid feature name "{text}": must be no more than 253 characters']
    return [] if matches(_FEATURE, text) else [f'invalid feature name "{text}": {_FEATURE_TEXT}']


def no_backsteps(text: str) -> list[str]:
    return ["must not contain '..'"] if ".." in text.split("/") else []


def relative_path(text: str) -> list[str]:
    absolute = ["must be a relative path"] if text.startswith("/") else []
    return absolute + no_backsteps(text)


def local_path(text: str) -> list[str]:
    """A relative path that does not begin with two dots, which atomic writers keep for themselves."""
    reserved = text.startswith("..") and not text.startswith("../")
    return relative_path(text) + (["must not start with '..'"] if reserved else [])


def ip_address(text: str) -> list[str]:
    """An address as new writes must have it: no leading zeros, no IPv4 inside IPv6."""
    address = parsed_address(text)
    if address is None:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    faults = [] if _canonical_octets(text) else ["must not have leading 0s"]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        faults.append("must not be an IPv4-mapped IPv6 address")
    return faults


def cidr(text: str) -> list[str]:
    address, slash, bits = text.partition("/")
    known = parsed_address(address)
    size = 128 if isinstance(known, ipaddress.IPv6Address) else 32
    if not slash or known is None or not re.fullmatch("[0-9]{1,3}", bits) or int(bits) > size:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    if not _canonical_octets(address) or str(int(bits)) != bits:
        return ["must not have leading 0s in IP or prefix length"]
    if isinstance(known, ipaddress.IPv6Address) and known.ipv4_mapped:
        return ["must not have an IPv4-mapped IPv6 address"]
    beyond = int(known) & ((1 << (size - int(bits))) - 1)
    return ["must not have bits set beyond the prefix length"] if beyond else []


def parsed_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, octets with leading zeros read as decimal; None if it is none."""
    if re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,10}){3}", text):
        text = ".".join(str(int(octet)) for octet in text.split("."))
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if getattr(address, "scope_id", None) else address


def _canonical_octets(text: str) -> bool:
    return ":" in text or all(octet == str(int(octet)) for octet in text.split("."))
