"""The files of the pages, read once: frames of HTML, and what browsers load beside them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response

from hushgrid.live.web.front import matches

MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",  # licences
}
# No inline script or style, nothing from elsewhere, no frame around us
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; font-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class StaticBody:
    """A body that never changes while the process runs."""

    body: bytes
    media: str
    etag: str

    @staticmethod
    def of(body: bytes, media: str) -> StaticBody:
        """With a tag made of what it holds."""
        return StaticBody(body, media, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def answer(self, request: Request, cache: str = "no-cache", status: int = 200) -> Response:
        """The answer to a request; 304 where the browser has it already."""
        headers = {
            "Cache-Control": cache,
            "ETag": self.etag,
            "Content-Security-Policy": POLICY,
        }
        unless = request.headers.get("if-none-match", "").encode("latin-1")
        if status == 200 and cache != "no-store" and matches(unless, self.etag.encode()):
            return Response(status_code=304, headers=headers)
        return Response(self.body, status, headers, media_type=self.media)


@cache
def assets() -> dict[str, StaticBody]:
    """Every file under static/ by its path there; nothing else can be asked for.

    >>> sorted(name for name in assets() if name.endswith(".css"))
    ['style.css', 'vendor/uplot/uPlot.min.css']
    """
    found: dict[str, StaticBody] = {}
    waiting = [("", resources.files(__package__) / "static")]
    while waiting:
        under, place = waiting.pop()
        for one in place.iterdir():
            name = f"{under}{one.name}"
            if one.is_dir():
                waiting.append((f"{name}/", one))
            else:
                found[name] = StaticBody.of(one.read_bytes(), MEDIA[PurePosixPath(name).suffix])
    return found


@cache
def frame(name: str) -> str:
    """A frame of HTML with {{fields}}."""
    place = resources.files(__package__) / "frames" / f"{name}.html"
    return place.read_text(encoding="utf-8")
