"""Who may do what: clients, their secrets, tokens and scopes."""

from hushgrid.live.access.access import Access, Token
from hushgrid.live.access.clients import Client, ClientStore, open_clients
from hushgrid.live.access.grants import NOBODY, Grant

__all__ = ["NOBODY", "Access", "Client", "ClientStore", "Grant", "Token", "open_clients"]
