"""Formats of names and values: each function gives what is wrong, in upstream's words; [] is fine.

Upstream: apimachinery's `pkg/util/validation` and `pkg/api/validate/content`.
"""

import ipaddress
import re
from functools import lru_cache

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_UNDERSCORED = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_UNDERSCORED = rf"{_LABEL_UNDERSCORED}(\.{_LABEL_UNDERSCORED})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_FEATURE = r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*"
_ALNUM_ENDS = "and must start and end with an alphanumeric character"
_LABEL_TEXT = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALNUM_ENDS}"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_ALNUM_ENDS}"
)
_SUBDOMAIN_UNDERSCORED_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    f"{_ALNUM_ENDS}"
)
_KEY_TEXT = f"must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}"
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ALNUM_ENDS}"
)
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
_LONGEST_CHECKED = 4096  # nested repeats make regular expressions slow on what is far too long anyway


def _matches(pattern: str, text: str) -> bool:
    return len(text) <= _LONGEST_CHECKED and re.fullmatch(pattern, text, re.ASCII) is not None


def _format(text: str, pattern: str, *examples: str) -> str:
    cases = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {cases}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def dns_label(text: str) -> list[str]:
    faults = _too_long(text, 63)
    if not _matches(_LABEL, text):
        if _matches(_SUBDOMAIN, text):
            return [*faults, "must not contain dots"]
        faults.append(_format(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return faults


def dns_subdomain(text: str, unit: str = "characters") -> list[str]:
    faults = _too_long(text, 253, unit)
    if not _matches(_SUBDOMAIN, text):
        faults.append(_format(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return faults


def dns_subdomain_underscored(text: str) -> list[str]:
    faults = _too_long(text, 253)
    if not _matches(_SUBDOMAIN_UNDERSCORED, text):
        faults.append(_format(_SUBDOMAIN_UNDERSCORED_TEXT, _SUBDOMAIN_UNDERSCORED, "example.com"))
    return faults


def name_prefix(text: str) -> str:
    """Return the text to check for a `generateName`, whose final dash will not end the name."""
    return f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text


def qualified_name(text: str) -> list[str]:
    """The key of a label, a taint, a condition: a name with or without a domain before it."""
    return list(_qualified_name_faults(text))


@lru_cache(maxsize=1024)
def _qualified_name_faults(text: str) -> tuple[str, ...]:
    """Cached: the keys of labels and annotations are few, and checked with every write of their object."""
    return tuple(_checked_qualified_name(text))


def _checked_qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        form = _format(_KEY_TEXT, _NAME, "MyName", "my.name", "123-abc")
        prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {form} {prefix}"]
    faults = _prefix_faults(parts[0]) if len(parts) == 2 else []
    name = parts[-1]
    if not name:
        faults.append("name part must be non-empty")
    faults += [f"name part {fault}" for fault in _too_long(name, 63, "bytes")]
    if not _matches(_NAME, name):
        faults.append(f"name part {_format(_KEY_TEXT, _NAME, 'MyName', 'my.name', '123-abc')}")
    return faults


def _prefix_faults(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    return [f"prefix part {fault}" for fault in dns_subdomain(prefix, "bytes")]


def label_value(text: str) -> list[str]:
    faults = _too_long(text, 63, "bytes")
    if not _matches(f"({_NAME})?", text):
        faults.append(_format(_VALUE_TEXT, f"({_NAME})?", "MyValue", "my_value", "12345"))
    return faults


def path_segment(text: str) -> list[str]:
    """Check that a name can be a segment of a URL's path."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in text]


def config_key(text: str) -> list[str]:
    faults = _too_long(text, 253)
    if not _matches(_CONFIG_KEY, text):
        faults.append(_format(_CONFIG_KEY_TEXT, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in {".", ".."}:
        faults.append(f"must not be '{text}'")
    elif text.startswith(".."):
        faults.append("must not start with '..'")
    return faults


def percentage(text: str) -> list[str]:
    """A whole number of per cent."""
    if _matches(_PERCENT, text):
        return []
    return [_format(_PERCENT_TEXT, _PERCENT, "1%", "93%")]


def condition_reason(text: str) -> list[str]:
    """Why a condition has its status: one word in camel case."""
    if _matches(_REASON, text):
        return []
    examples = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
    return [_format(_REASON_TEXT, _REASON, *examples)]


def absolute_path(text: str) -> list[str]:
    return [] if text.startswith("/") else ["must be an absolute path"]


def env_name(text: str) -> list[str]:
    if not text:
        return ["environment variable name must be non-empty"]
    return [] if all(" " <= letter <= "~" and letter != "=" for letter in text) else [_ENV_TEXT]


def header_name(text: str) -> list[str]:
    if _matches("[-A-Za-z0-9]+", text):
        return []
    form = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return [_format(form, "[-A-Za-z0-9]+", "X-Header-Name")]


def port_name(text: str) -> list[str]:
    faults = _too_long(text, 15)
    if not _matches("[-a-z0-9]+", text):
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
    if len(text) <= 253 and _matches(_SYSCTL, text):
        return []
    return [f"must have at most 253 characters and match regex ^{_SYSCTL}$"]


def feature_name(text: str) -> list[str]:
    if len(text) > 253:
        return [f'invalid feature name "{text}": must be no more than 253 characters']
    return [] if _matches(_FEATURE, text) else [f'invalid feature name "{text}": {_FEATURE_TEXT}']


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
