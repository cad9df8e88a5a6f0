"""Every path there is: its method, who may use it, and what it is for. One table for all.

The app is made from it, and so are the description at /v1/openapi.json and the test that tries
every path with every scope.
"""

from __future__ import annotations

from typing import NamedTuple

from hushgrid.live.deployment import Http

PUBLIC: tuple[str, ...] = ()


class Way(NamedTuple):
    """A path; one of `scopes` is needed, none where it is public. `name` is its handler's.

    `session`: may be looked at with a session's cookie in place of a token.
    """

    method: str
    path: str
    name: str
    scopes: tuple[str, ...]
    summary: str
    session: bool = False


def ways(http: Http) -> tuple[Way, ...]:
    """The paths of a service."""
    operator = ("operate",)
    figures = PUBLIC if http.metrics == "public" else ("operate",)
    return (
        Way("GET", "/v1/price", "feed", PUBLIC, "The newest price of a zone."),
        Way("GET", "/v1/prices", "feed", PUBLIC, "Prices published and, apart, prices expected."),
        Way("GET", "/v1/prices.csv", "feed", PUBLIC, "The same as a table."),
        Way("GET", "/v1/evcc", "feed", PUBLIC, "Prices as evcc's custom forecast reads them."),
        Way("GET", "/v1/emhass", "feed", PUBLIC, "Prices as EMHASS reads them."),
        Way("GET", "/v1/octopus", "feed", PUBLIC, "Prices as Octopus-style tools read them."),
        Way("GET", "/v1/stream", "stream", PUBLIC, "Prices as they come (server-sent events)."),
        Way("POST", "/v1/token", "token", PUBLIC, "A token for a client's id and secret."),
        Way("POST", "/v1/session", "log_in", PUBLIC, "Log in: a session in a cookie."),
        Way("GET", "/v1/session", "session", PUBLIC, "Who is logged in.", True),
        Way("DELETE", "/v1/session", "log_out", PUBLIC, "Log out."),
        Way("POST", "/v1/readings", "readings", ("write_readings",), "Take meter readings."),
        Way("GET", "/v1/status", "status", PUBLIC, "Where each zone stands."),
        Way("GET", "/v1/promise", "promise", PUBLIC, "What is promised to a zone's homes."),
        Way("GET", "/v1/tradeoff", "tradeoff", PUBLIC, "What other promises would cost."),
        Way("GET", "/v1/operator", "zones", operator, "All zones, for their operator.", True),
        Way("GET", "/v1/operator/zone", "zone", operator, "The inside of a zone.", True),
        Way(
            "GET", "/v1/operator/certificate", "certificate", ("operate", "audit"),
            "An audit of a zone's ledger.", True,
        ),
        Way(
            "GET", "/v1/ledger", "ledger", ("audit",), "A zone's signed records, one a line.", True
        ),
        Way("GET", "/v1/openapi.json", "openapi", PUBLIC, "This description."),
        Way("GET", "/v1/docs", "docs", PUBLIC, "This description as a page."),
        Way("GET", "/healthz", "healthy", PUBLIC, "The process answers."),
        Way("GET", "/readyz", "ready", PUBLIC, "Every zone is open and ticking."),
        Way("GET", "/metrics", "figures", figures, "Figures for Prometheus."),
    )  # fmt: skip
