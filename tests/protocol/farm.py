"""A farm without workers: the real functions on a real server, called one at a time, and what must always hold."""

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from redis import Redis

from speechmill.infra import protocol
from speechmill.infra.client import Client
from speechmill.infra.jobs import TERMINAL, JobRecord, log_of, read_record
from speechmill.infra.keys import Keys, LogRef, Task, new_id
from speechmill.infra.messages import Claim, SpeechRequest, Submission
from speechmill.infra.protocol import Append, Call, Fenced, Limits, Submitted

TALKER, CODEC, FINISH, STORE = "toy/talker", "toy/codec", "farm/finish", "farm/store"
ENCODE, KEEP = "toy/encode", "farm/keep"
STAGES = ("talker", "codec")
LEASE_MS = 60_000
TTL_S = 900
REQUEST = SpeechRequest(voice="v", seed=1, response_format="wav", sample_rate=24_000, channels=1)
RECORDING: dict[str, Any] = {"stages": ("encode",), "tail": ("keep",), "counted": False}
"""What sets a job that encodes a recording apart."""
FAILURE = '{"code": "generation_failed", "message": "it went wrong"}'


def submission(**changes: Any) -> Submission:
    """A job of the toy model; two stages, one segment unless said otherwise."""
    plain = {"job": new_id("job"), "model": "toy", "stages": STAGES, "segments": ("hello",), "request": REQUEST}
    return Submission(**{**plain, **changes})


@dataclass(slots=True)
class Writer:
    """An owner of a log, as far as appending goes."""

    farm: "Farm"
    log: LogRef
    token: str
    end: int = 0
    crc: int = 0

    def append(self, payload: bytes, frames: int | None = None, **more: Any) -> str:
        """One chunk, of as many frames as bytes unless said otherwise."""
        end = self.end + (len(payload) if frames is None else frames)
        made = Append(self.end, end, zlib.crc32(payload, self.crc), payload, **more)
        answer = self.farm.run(protocol.emit(self.log, self.token, made, TTL_S))
        if answer == "ok":
            self.end, self.crc = end, made.crc
        return answer

    def seal(self, trailer: str = "{}") -> str:
        return self.farm.run(protocol.seal(self.log, self.token, trailer, self.end))


@dataclass(slots=True)
class Farm:
    client: Client
    nonces: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))

    @property
    def keys(self) -> Keys:
        return self.client.keys

    @property
    def server(self) -> "Redis[bytes]":
        return cast("Redis[bytes]", self.client.server("control"))

    def run(self, call: Call[Any]) -> Any:
        return self.client.run(call)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(self, limits: Limits | None = None, **changes: Any) -> str:
        """Answers the job's id."""
        answer: Submitted = self.run(protocol.submit(submission(**changes), limits or Limits()))
        assert answer.answer == "ok", answer
        return answer.job

    def record(self, job: str) -> JobRecord:
        record = read_record(self.client, job)
        assert record is not None
        return record

    def state(self, job: str) -> str:
        return self.record(job).state

    def is_counted(self, job: str) -> bool:
        return self.server.hget(self.keys.job(job), "counted") == b"1"

    def task(self, claimed: Claim | Task) -> dict[str, str]:
        """The task's record."""
        task = claimed.task if isinstance(claimed, Claim) else claimed
        return {k.decode(): v.decode() for k, v in self.server.hgetall(self.keys.task(task)).items()}

    # -- tasks --------------------------------------------------------------------------------------------------------

    def ask(
        self, pool: str, worker: str = "w", lease_ms: int = LEASE_MS, open_slots: int = 0, only: Any = None
    ) -> Claim | str:
        """Claim, or hear why there is nothing."""
        nonce = f"{worker}.{next(self.nonces)}"
        return cast("Claim | str", self.run(protocol.claim(pool, worker, nonce, lease_ms, open_slots, only)))

    def claim(self, pool: str, worker: str = "w", lease_ms: int = LEASE_MS, open_slots: int = 0) -> Claim:
        claimed = self.ask(pool, worker, lease_ms, open_slots)
        assert isinstance(claimed, Claim), claimed
        return claimed

    def claim_lapsed(self, pool: str, worker: str = "w") -> Claim:
        """A task whose lease is over at once."""
        return self.claim(pool, worker, lease_ms=0)

    def renew(self, claimed: Claim, end: int = 0, lease_ms: int = LEASE_MS) -> str:
        (answer,) = self.run(protocol.renew(lease_ms, [(claimed.task, claimed.token, end)]))
        return cast(str, answer.verdict)

    def handback(self, claimed: Claim, problem: str = "", parked: bool = False) -> str:
        return cast(str, self.run(protocol.handback(claimed.task, claimed.token, problem, parked)))

    def commit(self, claimed: Claim, result: str = "") -> str:
        return cast(str, self.run(protocol.commit(claimed.task, claimed.token, result)))

    def reopen(self, claimed: Claim, position: int = 0) -> str:
        return cast(str, self.run(protocol.reopen(claimed.task, position)))

    def reap(self) -> list[str]:
        return cast("list[str]", self.run(protocol.reap()))

    def end_job(self, job: str, state: str, problem: str = "") -> str:
        return cast(str, self.run(protocol.end_job(job, state, problem)))

    def serve(self, pool: str, slots: int, worker: str = "w") -> None:
        self.run(protocol.beat(worker, "{}", 60_000, [(pool, slots)]))

    def ready(self, pool: str, job_class: str = "interactive") -> list[str]:
        """Tasks that wait, first come first."""
        entries = self.server.xrange(self.keys.ready(pool, job_class))
        return [fields[b"t"].decode() for _, fields in entries]

    # -- logs ---------------------------------------------------------------------------------------------------------

    def log(self, claimed: Claim) -> LogRef:
        return log_of(claimed.task, claimed.stages)

    def fence(self, claimed: Claim, base: int = -1) -> Fenced:
        return cast(Fenced, self.run(protocol.fence(self.log(claimed), claimed.token, base, TTL_S, "{}")))

    def writer(self, claimed: Claim, base: int = -1) -> Writer:
        stands = self.fence(claimed, base)
        assert stands.state == "ok"
        return Writer(self, self.log(claimed), claimed.token, stands.end, stands.crc)

    def audio(self, log: LogRef) -> bytes:
        """Payloads of all chunks, in order."""
        return b"".join(fields.get(b"d", b"") for _, fields in self.server.xrange(self.keys.log(log)))

    def lose(self, log: LogRef) -> None:
        """The log's server came back without it."""
        self.server.delete(self.keys.log(log), self.keys.log_meta(log))

    def write_all(self, claimed: Claim, payload: bytes = b"abcd") -> None:
        """A whole log and its commit."""
        writer = self.writer(claimed)
        assert writer.append(payload) == "ok"
        assert writer.seal() == "ok"
        assert self.commit(claimed) == "ok"

    def finish_all(self, job: str) -> None:
        """Take a job with one segment through all of its stages."""
        for pool in (TALKER, CODEC, FINISH):
            claimed = self.claim(pool)
            assert claimed.task.job == job
            self.write_all(claimed)
        assert self.commit(self.claim(STORE), '{"key": "audio/x"}') == "ok"

    # -- what must always hold ----------------------------------------------------------------------------------------

    def names(self, pattern: str) -> list[str]:
        return [key.decode() for key in self.server.scan_iter(f"{self.keys.root}:{pattern}", 1000)]

    def assert_counters_agree(self) -> None:
        """Counts and indexes are derived from the records, and never drift from them."""
        owned = {t.decode() for key in self.names("owned:*") for t in self.server.smembers(key)}
        assert {t.decode() for t in self.server.zrange(f"{self.keys.root}:leases", 0, -1)} == owned
        stages = Counter(Task.parse(task).stage for task in owned)
        held: Counter[str] = Counter()
        for pool, count in self.server.hgetall(self.keys.leased()).items():
            held[pool.decode().split("/")[1]] += int(count)
        assert +held == stages
        assert min(held.values(), default=0) >= 0
        jobs = [self.record(key.removeprefix(f"{self.keys.root}:job:")) for key in self.names("job:*")]
        live = [record for record in jobs if record.state not in TERMINAL]
        assert {j.decode() for j in self.server.zrange(self.keys.live(), 0, -1)} == {record.job for record in live}
        counted = {p.decode(): int(n) for p, n in self.server.hgetall(f"{self.keys.root}:projectlive").items()}
        assert counted == Counter(record.project for record in live if self.is_counted(record.job))
        queued = {j.decode() for key in self.names("queued:*") for j in self.server.zrange(key, 0, -1)}
        assert queued == {record.job for record in live if record.state == "queued"}

    def assert_gone_in_time(self, job: str) -> None:
        """Nothing of an ended job stays for ever, and no index names it."""
        for name in self.names(f"*{job}*"):
            assert self.server.ttl(name) > 0, name
        for key in (*self.names("owned:*"), *self.names("leases"), *self.names("backlog:*"), *self.names("live")):
            assert job not in str(_members(self.server, key)), key
        for key in self.names("ready:*"):
            assert job not in str(self.server.xrange(key)), key


def _members(server: "Redis[bytes]", key: str) -> list[bytes]:
    kind = server.type(key)
    if kind == b"set":
        return list(server.smembers(key))
    return list(server.zrange(key, 0, -1) if kind == b"zset" else server.lrange(key, 0, -1))


def age_queue(farm: Farm, job_class: str, count: int = 100) -> None:
    """Have the first tasks wait since long ago."""
    queue = farm.keys.ready(TALKER, job_class)
    entries = farm.server.xrange(queue)
    farm.server.delete(queue)
    for at, (entry, fields) in enumerate(entries):
        rid = f"{at + 1}-0" if at < count else entry
        farm.server.xadd(queue, fields, id=rid)
        farm.server.hset(farm.keys.task(Task.parse(fields[b"t"].decode())), "rid", rid)
