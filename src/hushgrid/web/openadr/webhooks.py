"""Webhooks: notifications to subscribers, sent by a thread of their own.

Every callback has a lane: its notifications are sent one after the other, in order. Every client
has slots of its own. Lanes whose last attempt failed or was slow have other slots, so that they
delay neither other clients nor the lanes of their client that work. Nothing is kept on disk: after
a restart the newest price is sent again while it applies.

A callback's name is resolved once, and the connection goes to the address that was checked.
Unless private targets are allowed, every address outside the public internet is refused, in any
notation (0x7f.1, 2130706433), and so are IPv6 addresses that contain such an IPv4 address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
import ssl
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from hushgrid.errors import VtnError

if TYPE_CHECKING:  # loaded with the first callback: it takes a twentieth of a start
    import httpx

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # an IPv4 address inside
# What IANA gives out for the public internet, less its registries of special purposes and the
# relays of 6to4. Written down here, because Python's own list differs from version to version.
_GLOBAL = ("1.0.0.0/8", "2.0.0.0/7", "4.0.0.0/6", "8.0.0.0/5", "16.0.0.0/4", "32.0.0.0/3",
           "64.0.0.0/2", "128.0.0.0/2", "192.0.0.0/4", "208.0.0.0/4", "2000::/3")  # fmt: skip
_SPECIAL = ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24",
            "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")  # fmt: skip
_ALLOWED, _DENIED = ([ipaddress.ip_network(net) for net in nets] for nets in (_GLOBAL, _SPECIAL))


class ForbiddenTargetError(ValueError):
    """A target that may not be called; the text gives the reason without the target."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect.

    Attributes:
        url: the callback with an IP address as its host.
        host: value of the Host header.
        name: host name for TLS.
    """

    url: httpx.URL = field(repr=False)
    host: str = field(repr=False)
    name: str = field(repr=False)


def check_callback(url: str, *, private: bool) -> httpx.URL:
    """Check the URL of a callback before its name is resolved.

    Args:
        url: text from a subscription.
        private: allow private addresses.

    Returns:
        The parsed URL.

    Raises:
        ForbiddenTargetError: if it may not be called.
    """
    import httpx

    try:
        parts = httpx.URL(url)
        port = parts.port
    except (httpx.InvalidURL, ValueError, TypeError):
        raise ForbiddenTargetError(
            "is no URL; give one such as https://ven.example/hook."
        ) from None
    if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo:
        raise ForbiddenTargetError(
            "is not http or https with a host and no user; give one that is."
        )
    if port is not None and not 0 < port < 65_536:
        raise ForbiddenTargetError("has no usable port; give one from 1 to 65535.")
    literal = _literal(parts.host.rstrip("."))
    if literal is not None and not private:
        _check_public(literal)
    return parts


async def resolve_target(url: str, *, private: bool, resolve: Resolve, turn: int = 0) -> Target:
    """Resolve a callback once; one forbidden address is enough to refuse it.

    Args:
        url: the callback.
        private: allow private addresses.
        resolve: (host, port) -> IP addresses.
        turn: which address to use if there are several; counted modulo their number.

    Returns:
        Where to connect.

    Raises:
        ForbiddenTargetError: if the URL or one of its addresses may not be called.
    """
    parts = check_callback(url, private=private)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = [_parse_address(text) for text in await resolve(parts.host, port)]
    if not addresses:
        raise ForbiddenTargetError("has no address; see that its name is known.")
    if not private:
        for address in addresses:
            _check_public(address)
    host = str(addresses[turn % len(addresses)])
    return Target(parts.copy_with(host=host), parts.netloc.decode("ascii"), parts.host)


def _parse_address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _literal(host: str) -> Address | None:
    """Return the address of a host that is an IP address, in any notation the system accepts."""
    try:
        return _parse_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _check_public(address: Address) -> None:
    if not is_public(address):
        raise ForbiddenTargetError("is not on the public internet; give a public host.")


def is_public(address: Address) -> bool:
    """Return True if an address, or the IPv4 address inside it, is of the public internet.

    Args:
        address: an IP address.

    Returns:
        False for private, local, reserved, multicast and tunnelled addresses.

    >>> [is_public(ipaddress.ip_address(a)) for a in ("::ffff:127.0.0.1", "10.0.0.1", "1.1.1.1")]
    [False, False, True]
    """
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address in _NAT64):
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    denied = any(address in net for net in _DENIED)
    return not denied and any(address in net for net in _ALLOWED)


log = logging.getLogger("hushgrid.webhooks")

WAITING = 1000  # notifications not yet distributed; the oldest is dropped first
LANE = 100  # notifications for one callback; the oldest is dropped first
LANE_SIZE = 1 << 20  # [bytes] of them, but for the newest
HEALTHY, FAILING = 256, 128  # callbacks called at the same time
OWN = {False: 16, True: 8}  # of them of one client, by whether they fail
ATTEMPTS = 8  # of one notification; one alone while the last one's all failed
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0  # [s] between attempts
PATIENCE = 5.0  # [s] for one attempt
SLOW = 2.0  # [s] an attempt that takes longer counts as failing for the next one
GRACE = 5.0  # [s] for attempts under way when the sender stops
FINAL = frozenset(range(300, 500)) - {408, 425, 429}  # not tried again

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Callback:
    """One callback of a subscription.

    Attributes:
        key: id of the subscription and index of the callback.
        client: owner of the subscription.
        program: id of the only program of interest, None for all.
        objects: types of objects of interest.
        operations: CREATE, UPDATE, DELETE.
        url: where to send.
        bearer: token to send, if any.
    """

    key: Key
    client: str
    program: str | None
    objects: frozenset[str]
    operations: frozenset[str]
    url: str = field(repr=False)
    bearer: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Note:
    """A notification.

    Attributes:
        kind: type of the object.
        operation: CREATE, UPDATE or DELETE.
        program: id of its program, if it has one.
        client: owner of the object, None for a public object.
        content: body to send.
    """

    kind: str
    operation: str
    program: str | None
    client: str | None
    content: bytes = field(repr=False)

    def concerns(self, callback: Callback) -> bool:
        """Return True if a callback subscribes to it and its client may see it."""
        return (
            self.kind in callback.objects
            and self.operation in callback.operations
            and callback.program in (None, self.program)
            and self.client in (None, callback.client)
        )


@dataclass(slots=True)
class _Lane:
    callback: Callback
    waiting: deque[bytes] = field(default_factory=deque)
    failing: bool = False
    turn: int = 0  # failed attempts
    tries: int = ATTEMPTS  # of the next notification
    naming: asyncio.Future[list[str]] | None = None
    worker: asyncio.Task[None] | None = None


class Webhooks:
    """Sender of webhooks, from `start` to `stop`.

    Args:
        callbacks: lists all callbacks; called in a worker thread.
        private: allow private addresses.
        pause: first pause between attempts [s].
        patience: most time of one attempt [s].
        counted: called with delivered, failed, refused or dropped.
        trust: TLS settings; the system's if None.
    """

    def __init__(
        self,
        callbacks: Callable[[], Iterable[Callback]],
        *,
        private: bool = False,
        pause: float = FIRST_PAUSE,
        patience: float = PATIENCE,
        counted: Callable[[str], None] = lambda _: None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._callbacks, self._private, self._counted = callbacks, private, counted
        self._pause, self._patience, self._trust = pause, patience, trust
        self._notes: deque[Note] = deque(maxlen=WAITING)
        self._lanes: dict[Key, _Lane] = {}
        self._jitter = random.SystemRandom()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self._ready.wait()

    def notify(self, note: Note) -> None:
        """Queue a notification for all callbacks it concerns. Returns at once. Thread-safe."""
        self._notes.append(note)
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake.set)

    def stop(self) -> None:
        """Wait some seconds for attempts under way, then end."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end.set)
            self._thread.join(GRACE + self._patience)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._wake, self._end = asyncio.Event(), asyncio.Event()
        self._slots = {False: asyncio.Semaphore(HEALTHY), True: asyncio.Semaphore(FAILING)}
        self._client_slots: dict[bool, defaultdict[str, asyncio.Semaphore]] = {
            bad: defaultdict(partial(asyncio.Semaphore, limit)) for bad, limit in OWN.items()
        }
        self._names = {bad: ThreadPoolExecutor(32, "names") for bad in (False, True)}
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._ready.set()
        distributing = asyncio.create_task(self._distribute())
        await self._end.wait()
        distributing.cancel()
        await self._leave()
        if "_http" in self.__dict__:
            await self._http.aclose()
        for pool in self._names.values():
            pool.shutdown(wait=False, cancel_futures=True)  # a name server may be slow

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(
            verify=self._trust or ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            timeout=self._patience,
        )

    async def _leave(self) -> None:
        tasks = [lane.worker for lane in self._lanes.values() if lane.worker is not None]
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=GRACE)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _distribute(self) -> None:
        """Put each notification into the lanes of the callbacks it concerns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while count := len(self._notes):
                try:
                    callbacks = await asyncio.to_thread(lambda: list(self._callbacks()))
                except VtnError:
                    log.warning("subscriptions away")
                    await self._sleep(self._pause)
                    continue
                self._keep(callbacks)
                # a later note may have callbacks that are not yet known
                for _ in range(count):
                    self._enter(self._notes.popleft(), callbacks)

    def _keep(self, callbacks: list[Callback]) -> None:
        """End the lanes of removed callbacks; update the callbacks of the others."""
        by_key = {callback.key: callback for callback in callbacks}
        for key in [key for key in self._lanes if key not in by_key]:
            lane = self._lanes.pop(key)
            if lane.worker is not None:
                lane.worker.cancel()
        for key, lane in self._lanes.items():
            lane.callback = by_key[key]

    def _enter(self, note: Note, callbacks: list[Callback]) -> None:
        for callback in callbacks:
            if not note.concerns(callback):
                continue
            lane = self._lanes.setdefault(callback.key, _Lane(callback))
            lane.waiting.append(note.content)
            while len(lane.waiting) > LANE or (
                len(lane.waiting) > 1 and sum(map(len, lane.waiting)) > LANE_SIZE
            ):
                lane.waiting.popleft()
                self._counted("dropped")
            if lane.worker is None or lane.worker.done():
                lane.worker = asyncio.create_task(self._drain(lane))

    async def _drain(self, lane: _Lane) -> None:
        while lane.waiting:
            content = lane.waiting.popleft()
            for attempt in range(lane.tries):
                if attempt:
                    pause = min(self._pause * 2.0 ** (attempt - 1), LAST_PAUSE)
                    await self._sleep(pause * self._jitter.uniform(0.5, 1.0))
                client_slot = self._client_slots[lane.failing][lane.callback.client]
                async with client_slot, self._slots[lane.failing]:
                    if self._end.is_set():
                        return
                    start = self._clock()
                    outcome = await self._attempt(lane, content)
                    if lane.naming is not None:  # a name that hangs keeps the slot with its thread
                        await asyncio.wait({lane.naming})
                lane.failing = outcome != "delivered" or self._clock() > start + SLOW
                lane.turn += outcome != "delivered"
                self._counted(outcome)
                if outcome != "failed":
                    lane.tries = ATTEMPTS
                    break
            else:
                lane.tries = 1
                self._counted("dropped")

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the time is over or the sender stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._end.wait(), seconds)

    async def _attempt(self, lane: _Lane, content: bytes) -> str:
        """Return delivered, failed (to be tried again) or refused (not tried again)."""
        try:
            async with asyncio.timeout(self._patience):
                status = await self._post(lane, content)
        except ForbiddenTargetError:
            log.warning("webhook refused", extra={"reason": "target not allowed"})
            return "refused"
        except Exception as error:  # a fault of one server must not affect the others
            log.info("webhook failed", extra={"error": type(error).__name__})
            return "failed"
        if 200 <= status < 300:
            return "delivered"
        log.info("webhook failed", extra={"status": status})
        return "refused" if status in FINAL else "failed"

    async def _post(self, lane: _Lane, content: bytes) -> int:
        callback = lane.callback
        target = await resolve_target(
            callback.url,
            private=self._private,
            resolve=lambda host, port: self._resolve(host, port, lane),
            turn=lane.turn,
        )
        headers = {"Host": target.host, "Content-Type": "application/json"}
        if callback.bearer:
            headers["Authorization"] = f"Bearer {callback.bearer}"
        async with self._http.stream(
            "POST",
            target.url,
            content=content,
            headers=headers,
            extensions={"sni_hostname": target.name},
        ) as answer:
            return answer.status_code  # its body is not read: it could be endless

    async def _resolve(self, host: str, port: int, lane: _Lane) -> list[str]:
        def addresses() -> list[str]:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [str(row[4][0]) for row in rows]

        loop = asyncio.get_running_loop()
        lane.naming = loop.run_in_executor(self._names[lane.failing], addresses)
        return await asyncio.shield(lane.naming)
