"""Where a callback may go: names are resolved once, and what is connected to is what was checked.

    target = await found("https://ven.example/hook", private=False, resolve=...)

Refused, unless private targets are allowed: every address that is not of the public internet, in
whatever notation (0x7f.1, 2130706433), and IPv6 addresses that stand for such an IPv4 one.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
# site-local, and tunnels that wrap any IPv4 address: Teredo, 6to4
_CLOSED = tuple(map(ipaddress.IPv6Network, ("fec0::/10", "2001::/32", "2002::/16")))


class ForbiddenTargetError(ValueError):
    """A target that may not be called; its text says why, without the target."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect, and who should answer there."""

    url: httpx.URL = field(repr=False)  # its host is an address
    host: str = field(repr=False)  # for the Host header
    name: str = field(repr=False)  # for TLS


def check_callback(url: str, *, private: bool) -> httpx.URL:
    """The parts of a URL that may be called as far as one sees without asking for its address."""
    try:
        parts = httpx.URL(url)
        port = parts.port
    except (httpx.InvalidURL, ValueError, TypeError):
        raise ForbiddenTargetError(
            "is no URL; give one such as https://ven.example/hook."
        ) from None
    if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo:
        raise ForbiddenTargetError(
            "is not http or https with a host and no user; give one that is."
        )
    if port is not None and not 0 < port < 65_536:
        raise ForbiddenTargetError("has no usable port; give one from 1 to 65535.")
    literal = _literal(parts.host.rstrip("."))
    if literal is not None and not private:
        _check_public(literal)
    return parts


async def found(url: str, *, private: bool, resolve: Resolve, turn: int = 0) -> Target:
    """Resolve once. One address that may not be called is enough to refuse all.

    Where a name has several addresses, each has its `turn`.
    """
    parts = check_callback(url, private=private)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = [_parsed(text) for text in await resolve(parts.host, port)]
    if not addresses:
        raise ForbiddenTargetError("has no address; see that its name is known.")
    if not private:
        for address in addresses:
            _check_public(address)
    chosen = str(addresses[turn % len(addresses)])
    return Target(parts.copy_with(host=chosen), parts.netloc.decode("ascii"), parts.host)


def _parsed(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _literal(host: str) -> Address | None:
    """The address that a host is, in any notation that the system would take for one."""
    try:
        return _parsed(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _check_public(address: Address) -> None:
    if not is_public(address):
        raise ForbiddenTargetError("is not on the public internet; give a public host.")


def is_public(address: Address) -> bool:
    """Whether an address, or the IPv4 address inside it, is of the public internet.

    >>> [is_public(ipaddress.ip_address(a)) for a in ("::ffff:127.0.0.1", "10.0.0.1", "1.1.1.1")]
    [False, False, True]
    """
    if isinstance(address, ipaddress.IPv6Address):
        wraps = address.ipv4_mapped is not None or address in _COMPATIBLE
        if wraps or any(address in net for net in _NAT64):
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if any(address in net for net in _CLOSED):
            return False
    bad = address.is_multicast or address.is_reserved or address.is_unspecified
    worse = address.is_loopback or address.is_link_local or address.is_private
    return address.is_global and not bad and not worse
