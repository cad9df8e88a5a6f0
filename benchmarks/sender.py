"""Sends readings in the benchmarks of intake, in a process of its own.

    python -m benchmarks.sender WAY PORT SIZE DELIVERIES CONNECTIONS

A line on standard input is the start of an interval [UTC s]: all deliveries of it are made and
"ready" is said. At the next line they are sent, and how many readings were accepted is said, or
sent where the broker confirms them.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

INTERVAL, TOKEN, TOPIC = 900, "a-token", "readings/bench"
MEDIA = {"ndjson": "application/x-ndjson", "arrow": "application/vnd.apache.arrow.stream"}


def name(k: int) -> str:
    return f"meter-{k:07d}"  # as running.meter, without its imports


def ndjson(meters: np.ndarray, start: int, wh: np.ndarray) -> bytes:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start))
    pairs = zip(meters.tolist(), wh.tolist(), strict=True)
    return "".join(
        f'{{"meter_id":"{name(k)}","start_utc":"{when}","duration_s":{INTERVAL},"wh":{w}}}\n'
        for k, w in pairs
    ).encode()


def arrow(meters: np.ndarray, start: int, wh: np.ndarray) -> bytes:
    times = pa.array(np.full(meters.size, start), pa.int64()).cast(pa.timestamp("s", "UTC"))
    table = pa.table(
        {
            "meter_id": [name(k) for k in meters.tolist()],
            "start_utc": times,
            "duration_s": np.full(meters.size, INTERVAL, np.int32),
            "wh": wh,
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def bodies(form: str, start: int, size: int, deliveries: int) -> list[bytes]:
    """Every meter once, some hundred Wh, in an order of the sender's own that stays the same."""
    order = np.random.default_rng(1).permutation(size * deliveries)
    wh = np.random.default_rng(start).gamma(2.0, 100.0, size * deliveries).astype(np.int64)
    rows = [slice(k * size, (k + 1) * size) for k in range(deliveries)]
    return [(ndjson if form == "ndjson" else arrow)(order[r], start, wh[r]) for r in rows]


class Http:
    """Each connection sends, waits for the answer, and sends its next."""

    def __init__(self, form: str, port: int, connections: int) -> None:
        self._pool = ThreadPoolExecutor(connections)
        self._head = (
            f"POST /v1/readings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: {MEDIA[form]}\r\nContent-Length: "
        )
        self._port, self._connections = port, connections

    def send(self, made: list[bytes]) -> int:
        n = self._connections
        return sum(self._pool.map(self._some, [made[k::n] for k in range(n)]))

    def _some(self, made: list[bytes]) -> int:
        with socket.create_connection(("127.0.0.1", self._port)) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._send(link, made)

    def _send(self, link: socket.socket, made: list[bytes]) -> int:
        accepted = 0
        for body in made:
            link.sendall(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
            answer = b""
            while b"\r\n\r\n" not in answer or not answer.rstrip().endswith(b"}"):
                piece = link.recv(1 << 16)
                if not piece:
                    raise ConnectionError(answer)
                answer += piece
            accepted += json.loads(answer.partition(b"\r\n\r\n")[2])["accepted"]
        return accepted


class Mqtt:
    """QoS 1, as many messages under way as there are."""

    def __init__(self, port: int, topic: str) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        self._topic, self._client = topic, paho.Client(CallbackAPIVersion.VERSION2)
        self._client.max_inflight_messages_set(65_535)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def send(self, made: list[bytes]) -> int:
        sent = [self._client.publish(self._topic, body, qos=1) for body in made]
        for each in sent:
            each.wait_for_publish(60)
        return len(sent)


def main() -> None:
    way, port, size, deliveries, connections = sys.argv[1], *map(int, sys.argv[2:])
    sender = Mqtt(port, TOPIC) if way == "mqtt" else Http(way, port, connections)
    for line in sys.stdin:
        made = bodies("ndjson" if way == "mqtt" else way, int(line), size, deliveries)
        print("ready", flush=True)
        sys.stdin.readline()
        print(sender.send(made), flush=True)


if __name__ == "__main__":
    main()
