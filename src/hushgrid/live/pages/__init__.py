"""Pages for people: what the ways under /v1 tell, shown. The pages themselves know no figure."""

from hushgrid.live.pages.routes import page_routes

__all__ = ["page_routes"]
