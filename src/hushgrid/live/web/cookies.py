"""The session's cookie, and where a request with one comes from. Pure."""

from __future__ import annotations

from collections.abc import Iterable

NAME = "hushgrid_session"

Pairs = Iterable[tuple[bytes, bytes]]  # headers as ASGI has them, names in small letters


def session_in(headers: Pairs) -> str | None:
    """The session that a request brings along; none where it brings two, since one is not ours.

    >>> session_in([(b"cookie", b"a=1; hushgrid_session=x"), (b"cookie", b"b=2")])
    'x'
    >>> session_in([(b"cookie", b"hushgrid_session=x; hushgrid_session=y")]) is None
    True
    """
    found: list[str] = []
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, equals, text = part.strip().partition("=")
                if equals and key == NAME:
                    found.append(text)
    return found[0] if len(found) == 1 and found[0] else None


def ours(headers: Pairs, *, told: bool) -> bool:
    """Whether a page of our own asks, or nobody's page does, as far as the browser tells.

    `told`: the browser must have said so. It says so in headers that no page can set.

    >>> ours([(b"sec-fetch-site", b"same-origin")], told=True)
    True
    >>> ours([(b"origin", b"https://a.example"), (b"host", b"b.example")], told=False)
    False
    >>> ours([], told=False), ours([], told=True)
    (True, False)
    """
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        by_name.setdefault(name, []).append(value.strip())
    site, origin = by_name.get(b"sec-fetch-site"), by_name.get(b"origin")
    if site is not None:  # "none": typed into the address bar, which changes nothing
        return site == [b"same-origin"] or (site == [b"none"] and not told)
    if origin is not None:
        host = by_name.get(b"host", [])
        return len(origin) == len(host) == 1 and _place(origin[0]) == host[0].lower()
    return not told


def _place(origin: bytes) -> bytes:
    """Host and port of an origin; the scheme may be a proxy's in front of us."""
    return origin.lower().partition(b"://")[2]
