"""How long a chunk takes from one process to another: appended to a log, seen in the reader's inbox."""

import subprocess
import sys
import time
import zlib

from speechmill.infra.client import Client, read_entries
from speechmill.infra.keys import Keys, LogRef, Task, new_id
from speechmill.infra.protocol import Append, emit, fence, follow

CHUNK_BYTES = 3840
PERIOD_S = 0.01
COUNT = 400


def produce(url: str, prefix: str, job: str) -> None:
    """Append a chunk every 10 ms; each begins with the moment at which it was sent."""
    client = Client(url, url, Keys(prefix))
    log = _log(job)
    client.run(fence(log, "1:bench", -1, 60, "{}"))
    crc = 0
    for number in range(COUNT):
        time.sleep(PERIOD_S)
        payload = time.monotonic_ns().to_bytes(8, "little") + bytes(CHUNK_BYTES - 8)
        crc = zlib.crc32(payload, crc)
        client.run(emit(log, "1:bench", Append(number, number + 1, crc, payload), 60))


def _log(job: str) -> LogRef:
    return LogRef(Task(job, 1, 0, "bench"), "control")


def measure_hops(url: str, prefix: str) -> list[float]:
    """Milliseconds from before the append to after the reader has the chunk."""
    client, job, inbox = Client(url, url, Keys(prefix)), new_id("job"), new_id("bench")
    server, key = client.server("control"), client.keys.inbox(inbox)
    client.load()
    seen = "0-0"
    server.xadd(key, {"poke": b"1"})
    server.expire(key, 120)
    client.run(follow(_log(job), inbox, 60))
    command = f"from speechmill.cli.bench.hops import produce; produce({url!r}, {prefix!r}, {job!r})"
    hops: list[float] = []
    with subprocess.Popen([sys.executable, "-c", command]):
        while len(hops) < COUNT:
            reply = read_entries(server.xread({key: seen}, block=1000))
            now = time.monotonic_ns()
            for entry, fields in reply.get(key.encode(), []):
                seen = entry.decode()
                if b"d" in fields:
                    hops.append((now - int.from_bytes(fields[b"d"][:8], "little")) / 1e6)
    client.close()
    return hops[COUNT // 10 :]
