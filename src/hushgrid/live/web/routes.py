"""Every path there is: its method, who may use it, and what it is for. One table for all.

The app is made from it, and so are the description at /v1/openapi.json and the test that tries
every path with every scope.
"""

from __future__ import annotations

from typing import NamedTuple

from hushgrid.live.deployment import Http

PUBLIC: tuple[str, ...] = ()


class Route(NamedTuple):
    """A path; one of `scopes` is needed, none where it is public. `name` is its handler's.

    `session`: may be looked at with a session's cookie in place of a token.
    """

    method: str
    path: str
    name: str
    scopes: tuple[str, ...]
    summary: str
    session: bool = False


def ways(http: Http) -> tuple[Route, ...]:
    """The paths of a service."""
    operator = ("operate",)
    figures = PUBLIC if http.metrics == "public" else ("operate",)
    return (
        Route("GET", "/v1/price", "feed", PUBLIC, "The newest price of a zone."),
        Route("GET", "/v1/prices", "feed", PUBLIC, "Prices published and, apart, prices expected."),
        Route("GET", "/v1/prices.csv", "feed", PUBLIC, "The same as a table."),
        Route("GET", "/v1/evcc", "feed", PUBLIC, "Prices as evcc's custom forecast reads them."),
        Route("GET", "/v1/emhass", "feed", PUBLIC, "Prices as EMHASS reads them."),
        Route("GET", "/v1/octopus", "feed", PUBLIC, "Prices as Octopus-style tools read them."),
        Route("GET", "/v1/stream", "stream", PUBLIC, "Prices as they come (server-sent events)."),
        Route("POST", "/v1/token", "token", PUBLIC, "A token for a client's id and secret."),
        Route("POST", "/v1/session", "log_in", PUBLIC, "Log in: a session in a cookie."),
        Route("GET", "/v1/session", "session", PUBLIC, "Who is logged in.", True),
        Route("DELETE", "/v1/session", "log_out", PUBLIC, "Log out."),
        Route("POST", "/v1/readings", "readings", ("write_readings",), "Take meter readings."),
        Route("GET", "/v1/status", "status", PUBLIC, "Where each zone stands."),
        Route("GET", "/v1/promise", "promise", PUBLIC, "What is promised to a zone's homes."),
        Route("GET", "/v1/tradeoff", "tradeoff", PUBLIC, "What other promises would cost."),
        Route("GET", "/v1/operator", "zones", operator, "All zones, for their operator.", True),
        Route("GET", "/v1/operator/zone", "zone", operator, "The inside of a zone.", True),
        Route(
            "GET", "/v1/operator/certificate", "certificate", ("operate", "audit"),
            "An audit of a zone's ledger.", True,
        ),
        Route(
            "GET", "/v1/ledger", "ledger", ("audit",), "A zone's signed records, one a line.", True
        ),
        Route("GET", "/v1/openapi.json", "openapi", PUBLIC, "This description."),
        Route("GET", "/v1/docs", "docs", PUBLIC, "This description as a page."),
        Route("GET", "/healthz", "healthy", PUBLIC, "The process answers."),
        Route("GET", "/readyz", "ready", PUBLIC, "Every zone is open and ticking."),
        Route("GET", "/metrics", "figures", figures, "Figures for Prometheus."),
    )  # fmt: skip
