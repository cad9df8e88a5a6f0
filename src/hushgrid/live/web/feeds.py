"""What a request for prices asks for, and the answer to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from hushgrid.durations import instant_of
from hushgrid.live.clock import Clock
from hushgrid.live.feeds.pages import BY_PATH, Pages
from hushgrid.live.feeds.series import LIMIT, MOST, USUAL, PriceRange
from hushgrid.live.web.front import page_answer
from hushgrid.live.web.problems import UnfitError, problem

# Octopus's own names for what is asked for
ALIASES = {"period_from": "from", "period_to": "to", "page_size": "limit"}


class Feeds:
    """Answers with pages, made where they are not yet."""

    def __init__(self, pages: Pages, clock: Clock) -> None:
        self._pages, self._clock = pages, clock

    async def feed(self, request: Request) -> Response:
        """GET of any feed."""
        path = request.scope["path"]  # request.url is made of the Host header, too
        try:
            zone = zone_asked(request.query_params, self._pages.zones)
            span = USUAL if BY_PATH[path].shape is None else span_asked(request.query_params)
        except UnfitError as error:
            return error.answer()
        page = self._pages.ready(path, zone, span)
        if page is None:
            page = await to_thread.run_sync(self._pages.page, path, zone, span)
        if page is None:
            return problem(404, f"Zone {zone!r} has no price yet; ask again after an interval.")
        return page_answer(page, request.headers.get("if-none-match"), self._clock.now())


def zone_asked(query: Mapping[str, str], zones: Iterable[str]) -> str:
    """The zone of a request; where there is one alone, it need not be named."""
    names, zone = tuple(zones), query.get("zone")
    fix = f"give one of {', '.join(names)}"
    if zone is None:
        if len(names) == 1:
            return names[0]
        raise UnfitError("zone", None, fix)
    if zone not in names:
        raise UnfitError("zone", zone, fix, status=404)
    return zone


def span_asked(query: Mapping[str, str]) -> PriceRange:
    """The range of a request."""
    given = {ALIASES.get(name, name): (name, value) for name, value in query.items()}
    since, until = (_instant(*given[name]) if name in given else None for name in ("from", "to"))
    if since is not None and until is not None and until < since:
        raise UnfitError(*given["to"], "give an instant that is not before from")
    return PriceRange(since, until, _limit(*given["limit"]) if "limit" in given else LIMIT)


def _instant(name: str, value: str) -> int:
    # a plus sign in a query is a space once it is read
    found = instant_of(value.replace(" ", "+")) if len(value) < 40 and value.isascii() else None
    if found is None:
        raise UnfitError(
            name, value, "give a date-time with its offset such as 2026-01-01T00:00:00Z"
        )
    return found


def _limit(name: str, value: str) -> int:
    number = int(value) if re.fullmatch("[0-9]{1,6}", value) else 0
    if not 1 <= number <= MOST:
        raise UnfitError(name, value, f"give a whole number from 1 to {MOST}")
    return number
