"""Headers that every answer carries."""

from __future__ import annotations

Headers = list[tuple[bytes, bytes]]

NOTHING = b"default-src 'none'; frame-ancestors 'none'"  # for data: a browser runs nothing of it
YEAR = 31_536_000  # [s]


def security_headers(tls: bool) -> Headers:
    """What browsers are told about any answer of ours."""
    always = [
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", NOTHING),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
    ]
    if tls:
        always.append((b"strict-transport-security", b"max-age=%d" % YEAR))
    return always


def adorned(headers: Headers, always: Headers) -> Headers:
    """The headers of an answer with ours, but for those it sets itself."""
    own = {name.lower() for name, _ in headers}
    return headers + [one for one in always if one[0] not in own]
