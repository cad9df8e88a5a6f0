"""Setup of the demo: its service in a folder (file, key, operator) from epsilon, and a broker."""

from __future__ import annotations

import getpass
import hashlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from hushgrid._numbers import is_real
from hushgrid.curator.clock import utc
from hushgrid.errors import ServiceError
from hushgrid.files.deployment import Deployment
from hushgrid.files.results import write_text
from hushgrid.files.service_file import load_deployment
from hushgrid.operate.template import BLOCK_KEYS, KEY_FILE
from hushgrid.stores.clients import Client, ClientStore, expand_scopes, hash_secret
from hushgrid.stores.ledger.writer import create
from hushgrid.stores.meters.block_keys import BlockKeys

PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"
PATIENCE, LOOK = 10.0, 0.05  # [s] until it answers, and between two looks


@contextmanager
def private_broker(folder: Path) -> Iterator[int | None]:
    """A mosquitto broker that only this machine reaches.

    Args:
        folder: Where its configuration is written.

    Yields:
        Its port; None where mosquitto is not installed or does not start.
    """
    program = shutil.which("mosquitto", path=PLACES) or shutil.which("mosquitto")
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    file = folder / "mosquitto.conf"
    file.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {getpass.getuser()}\n"
        "persistence false\n"
    )
    with subprocess.Popen(
        [program, "-c", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends the demo first, then the broker
    ) as process:
        try:
            yield port if _answers(port, process) else None
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(LOOK)
        else:
            return True
    return False


LIMITS = (0.1, 20.0)  # of epsilon
CHOICES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # of its dial
COLD = 1.3  # what every house uses on a cold evening, of the usual
EVENING = 17 * 3600  # [s of the day] when the living zone begins
OPERATOR = "operator"  # the client id of the demo's own operator
_FOR_EVER = 10**9  # [s] of the demo's clock: tokens must outlast its fast days


def check_epsilon(epsilon: float) -> float:
    """An epsilon that the demo can promise.

    >>> check_epsilon(99.0)
    Traceback (most recent call last):
    hushgrid.errors.ServiceError: epsilon is 99.0; give a number from 0.1 to 20.

    Args:
        epsilon: Of the promise about any 24 hours.

    Returns:
        The same.

    Raises:
        ServiceError: If it is outside the limits.
    """
    low, high = LIMITS
    if not is_real(epsilon) or not low <= epsilon <= high:
        raise ServiceError(f"epsilon is {epsilon!r}; give a number from {low:g} to {high:g}.")
    return epsilon


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets of the demo's own parts.

    Attributes:
        token: The meters' token.
        operator: The operator's secret.
    """

    token: str
    operator: str


def write_service(
    folder: Path,
    epsilon: float,
    secrets: Secrets,
    *,
    begins: int,
    port: int,
    mqtt: int | None = None,
) -> Deployment:
    """Write service file and key into a folder, add its operator, and plan.

    A folder may be used again for a later `begins`: its key, ledger and operator are kept.

    Args:
        folder: The folder.
        epsilon: Of the promise about any 24 hours.
        secrets: Secrets of the demo's parts.
        begins: Start of the first interval [UTC s].
        port: Port of the HTTP server.
        mqtt: Port of a broker on this machine; None: no broker.

    Returns:
        The service.
    """
    digest = hashlib.sha256(secrets.token.encode()).hexdigest()
    broker = (
        f'\n[mqtt]\nhost = "127.0.0.1"\nport = {mqtt}\nprices = "hushgrid/{{zone}}/price"\n'
        if mqtt
        else ""
    )
    text = files("hushgrid.demo").joinpath("service.toml").read_text("utf-8")
    for name, value in {
        "begins": utc(begins),
        "port": port,
        "token": digest,
        "mqtt": broker,
        "epsilon": float(epsilon),
    }.items():
        text = text.replace(f"{{{name}}}", str(value))
    path = folder / "service.toml"
    write_text(path, text)
    if not (folder / KEY_FILE).exists():
        create(folder / KEY_FILE)
        BlockKeys(folder / BLOCK_KEYS).make()
    deployment = load_deployment(path)
    _add_operator(deployment, secrets)
    assert deployment.http is not None
    return replace(deployment, http=replace(deployment.http, token_lifetime=_FOR_EVER))


def _add_operator(deployment: Deployment, secrets: Secrets) -> None:
    with ClientStore(deployment.client_store) as store:
        if store.find(OPERATOR) is None:
            scopes = expand_scopes(["operator"])
            store.add(Client(OPERATOR, scopes, hash_secret(secrets.operator), int(time.time())))
