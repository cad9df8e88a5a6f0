"""hushgrid client: who may send readings, look inside, or read and write over OpenADR."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, put_json, say

app = typer.Typer(
    help="Add, list and revoke the clients of a service.",
    no_args_is_help=True,
)

Service = Annotated[Path, typer.Option("--config", help="Service file (TOML).")]
Name = Annotated[str, typer.Argument(metavar="ID", help="The client's id.")]


@app.command()
def add(
    name: Name,
    config: Service = Path("service.toml"),
    scope: Annotated[
        list[str] | None,
        typer.Option(help="meters, operator, auditor, ven, business, or a scope; repeatable."),
    ] = None,
    ven: Annotated[str | None, typer.Option(help="Name of the client's VEN.")] = None,
    json: Json = None,
) -> None:
    """Add a client and print its secret: only now, for nothing but its hash is kept.

    Example: hushgrid client add meters-north --scope meters --config service.toml
    """
    import time

    from hushgrid.errors import AccessError
    from hushgrid.live.access.clients import Client, open_clients
    from hushgrid.live.access.grants import KINDS, scopes_named
    from hushgrid.live.access.hashing import hashed, new_secret
    from hushgrid.live.config import load_deployment

    if not scope:
        raise AccessError(
            "invalid_scope", f"--scope is missing; give one of {', '.join(KINDS)}, or a scope."
        )
    scopes, secret = scopes_named(scope), new_secret()
    with open_clients(load_deployment(config).client_store) as store:
        store.add(Client(name, scopes, hashed(secret), int(time.time()), ven))
    say(f"client_id      {name}\nclient_secret  {secret}\nscope          {' '.join(scopes)}", json)
    say("The secret is not shown again; whoever lost it is added anew.", json)
    told = {"client_id": name, "client_secret": secret, "scopes": scopes, "ven": ven}
    put_json(told, json)


@app.command("list")
def list_(config: Service = Path("service.toml"), json: Json = None) -> None:
    """List all clients, the revoked ones too.

    Example: hushgrid client list --config service.toml
    """
    from hushgrid.live.access.clients import open_clients
    from hushgrid.live.config import load_deployment
    from hushgrid.live.publish import utc

    with open_clients(load_deployment(config).client_store) as store:
        found = store.all()
    rows = [
        {
            "client_id": one.id,
            "scopes": one.scopes,
            "ven": one.ven,
            "created": utc(one.created),
            "revoked": None if one.revoked is None else utc(one.revoked),
        }
        for one in found
    ]
    for row in rows:
        ended = f"revoked {row['revoked']}" if row["revoked"] else " ".join(row["scopes"] or ())
        say(f"{row['client_id']:<24} {row['created']}  {ended}", json)
    put_json({"clients": rows}, json)


@app.command()
def revoke(name: Name, config: Service = Path("service.toml"), json: Json = None) -> None:
    """Revoke a client; its tokens end within seconds, and its id is never used again.

    Example: hushgrid client revoke meters-north --config service.toml
    """
    import time

    from hushgrid.errors import AccessError
    from hushgrid.live.access.clients import open_clients
    from hushgrid.live.config import load_deployment
    from hushgrid.tables import shown

    with open_clients(load_deployment(config).client_store) as store:
        if not store.revoke(name, int(time.time())):
            raise AccessError(
                "invalid_client",
                f"client id is {shown(name)}; give one that hushgrid client list shows as active.",
            )
    say(f"{name} is revoked.", json)
    put_json({"client_id": name, "revoked": True}, json)
