"""The reading side of a worker: claims tasks while there are free slots, and feeds them their input logs.

Each Redis server has one thread that blocks on this worker's inbox there; the control server's also watches the ready
queues. Inbox entries are hints: on a hole or a second of silence the log itself is read.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis

from speechmill.infra.client import BLOCK_MS, UNAVAILABLE, Client, Entry, read_entries
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.jobs import log_of
from speechmill.infra.keys import FILING_STAGES, ONGOING, READY_QUEUES, TEXT, Role
from speechmill.infra.messages import Claim, Heard, LogChunk
from speechmill.infra.protocol import (
    Fenced,
    Followed,
    Hole,
    LogReader,
    Misaligned,
    advance,
    claim,
    commit,
    fence,
    follow,
    handback,
    poke,
    reopen,
    unfollow,
)
from speechmill.infra.spill import Spill
from speechmill.models.stage import Chunk, Mark, Resume
from speechmill.workers.assets import Assets
from speechmill.workers.finish import Cursor
from speechmill.workers.history import read_history, read_whole
from speechmill.workers.loop import Loop
from speechmill.workers.opening import log_header
from speechmill.workers.runner import MAX_WAITING, Runner, Wanted
from speechmill.workers.work import Drop, Failed, Feed, Open, Work, frame_bytes, input_logs

log = logging.getLogger(__name__)
READ_COUNT = 64
SILENCE_S = 1.0
RETRY_S = 0.2
INBOX_TTL_S = 60
MOVING_S = 0.5
HEARD = (b"j", b"s", b"p", b"w")
"""How far a job is heard: segments joined, samples, milliseconds since it plays and of those without audio."""


class Intake:
    """Claims and follows. Every LogReader is touched under one lock, whichever thread brings news of it."""

    def __init__(self, client: Client, loop: Loop, worker: str, lease_ms: int, spill: Spill, assets: Assets) -> None:
        self._client = client
        self._loop = loop
        self._worker = worker
        self._inbox = client.keys.inbox(worker)
        self._lease_ms = lease_ms
        self._spill = spill
        self._assets = assets
        self.failed: Callable[[Failed], None] = lambda failed: None
        """Told of a task that cannot be opened, or has lost what it reads for good."""
        self._lock = threading.RLock()
        self._following: dict[str, Work] = {}
        self._held: dict[str, Work] = {}
        self._claims: dict[str, int] = {}
        self._draining = False
        self._stop = False
        self._threads = [
            threading.Thread(target=self._watch, args=(role,), name=f"intake-{role}", daemon=True)
            for role, _ in client.servers()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def drain(self) -> None:
        """Claim nothing more."""
        self._draining = True

    def stop(self) -> None:
        self._stop = True
        self._draining = True
        for thread in self._threads:
            thread.join(timeout=BLOCK_MS / 1000 + 1)

    def held(self) -> list[Work]:
        """Every task that this worker owns now."""
        with self._lock:
            return list(self._held.values())

    def moving(self) -> bool:
        """Whether some task is likely to be finished soon: it has all of its input, or got some just now."""
        lately = time.monotonic() - MOVING_S
        return any(not work.inputs or work.last_input > lately for work in self.held())

    def let_go(self, work: Work) -> None:
        """Forget a task that ended or was lost."""
        with self._lock:
            if self._held.get(str(work.task)) is work:
                del self._held[str(work.task)]
            if work.inputs and self._following.get(work.inputs[0].name) is work:
                del self._following[work.inputs[0].name]

    def poke(self, pool: str) -> None:
        """Have the control thread look for work at once: the pool has a free slot."""
        if not self._draining:
            with suppress(*UNAVAILABLE):
                self._client.run(poke(self._worker, pool, INBOX_TTL_S, "control"))

    def hand_over(self, producer: Work, chunk: Chunk) -> bool:
        """Feed a follower in this process ahead of the log (loop's thread). Its own appends wait for the producer's.

        Never waits: what is not handed over comes by the log.
        """
        if producer.log is None or not self._lock.acquire(blocking=False):
            return False
        try:
            follower = self._following.get(producer.log.name)
            if follower is None or follower.reader is None or follower.reader.position != chunk.start:
                return False
            follower.reader.pass_by(chunk.end)
            follower.fed = (producer, chunk.end)
            follower.last_input = time.monotonic()
            self._loop.put(Feed(follower, chunk))
            return True
        finally:
            self._lock.release()

    def disown(self, producer: Work) -> None:
        """What the producer handed over may never be in its log: its follower begins anew from the log."""
        with self._lock:
            for work in list(self._held.values()):
                if work.fed is not None and work.fed[0] is producer and producer.end < work.fed[1]:
                    self.drop(work, "its input was not appended")

    # -- watching ---------------------------------------------------------------------------------------------------

    def _watch(self, role: Role) -> None:
        server, inbox = self._client.server(role), self._inbox
        seen: dict[str, str] = {}
        looked = 0.0
        while not self._stop:
            try:
                if inbox not in seen:
                    seen[inbox] = self._client.run(poke(self._worker, "", INBOX_TTL_S, role))
                streams: dict[Any, Any] = {key: seen.get(key, "0-0") for key in (inbox, *self._ready_queues(role))}
                reply = read_entries(server.xread(streams, count=READ_COUNT, block=BLOCK_MS))
                for key, entries in reply.items():
                    seen[key.decode()] = entries[-1][0].decode()
                wanted = self._take_news(reply.pop(inbox.encode(), []))
                wanted |= {self._pool_of(key.decode()) for key in reply}
                if time.monotonic() - looked > SILENCE_S / 2:
                    looked = time.monotonic()
                    self._client.run(poke(self._worker, "", INBOX_TTL_S, role))
                    self._look_after_silence(server)
                    wanted |= set(self._loop.runners)
                if role == "control":
                    self._claim_all(wanted)
            except UNAVAILABLE as error:
                log.warning("server away", extra={"server": role, "error": str(error)})
                seen.pop(inbox, None)
                time.sleep(RETRY_S)

    def _ready_queues(self, role: Role) -> list[str]:
        """Queues that could fill a free slot; none on a server that holds no queues."""
        if role != "control" or self._draining:
            return []
        free = [runner for runner in self._loop.runners.values() if runner.taken < runner.slots]
        ready = self._client.keys.ready
        few = {"interactive": (ONGOING, "interactive"), "ongoing": (ONGOING,)}
        return [ready(one.pool, name) for one in free for name in few.get(one.wanted, READY_QUEUES)]

    def _pool_of(self, queue: str) -> str:
        """`…:ready:<pool>:<class>`"""
        return queue.removeprefix(self._client.keys.ready("", "")[:-1]).rsplit(":", 1)[0]

    def _take_news(self, entries: Sequence[Entry]) -> set[str]:
        """Act on an inbox; answers the pools that have a free slot since."""
        free: set[str] = set()
        for _, fields in entries:
            if b"poke" in fields:
                free.add(fields[b"poke"].decode())
            elif b"l" in fields:
                with self._lock:
                    work = self._following.get(fields[b"l"].decode())
                    if work is not None:
                        self._hint(work, fields)
            elif b"closed" in fields:
                with self._lock:
                    closed = self._held.get(fields[b"closed"].decode())
                if closed is not None:
                    self.drop(closed, "closed")
            elif b"heard" in fields:
                self._pass_news(fields[b"heard"].decode(), Heard.parse(*(fields[name] for name in HEARD)))
        return free

    def _pass_news(self, job: str, heard: Heard) -> None:
        for work in self.held():
            if work.task.job == job:
                work.hear(heard)

    # -- claiming ---------------------------------------------------------------------------------------------------

    def _claim_all(self, pools: set[str]) -> None:
        """Fill free slots, the last stage first: what is begun is finished before more is begun."""
        for runner in reversed([self._loop.runners[pool] for pool in self._loop.runners if pool in pools]):
            while not self._draining and (wanted := runner.reserve()):
                seated = False
                try:
                    claimed = self._claim(runner, wanted)
                    seated = claimed is not None and self._begin(runner, claimed)
                finally:
                    if not seated:
                        runner.unreserve()
                if claimed is None:
                    break

    def _claim(self, runner: Runner, wanted: Wanted) -> Claim | None:
        number = self._claims.get(runner.pool, 0)
        nonce = f"{self._worker}.{number}"  # the same until it was answered: a lost answer is given again
        only = None if wanted == "any" else wanted
        call = claim(runner.pool, self._worker, nonce, self._lease_ms, runner.taken - 1, only)
        answer = self._client.run(call)
        self._claims[runner.pool] = number + 1
        return answer if isinstance(answer, Claim) else None

    def _begin(self, runner: Runner, claimed: Claim) -> bool:
        """Fence the task's log and open its slot. False when there is nothing to do any more.

        A server that goes away in between costs the lease, nothing else.
        """
        task = claimed.task
        own = None if task.stage in FILING_STAGES else log_of(task, claimed.stages)
        work = Work(claim=claimed, pool=runner.pool, log=own)
        log.info("claimed", extra={"job": task.job, "segment": task.segment, "stage": task.stage})
        stands = self._fence(work) if own is not None else Fenced("ok")
        if stands.state != "ok" or stands.trailer:
            # somebody newer has it, the job has ended, or a predecessor wrote all of it and only the commit is missing
            finished = stands.state == "ok"
            self._client.run(commit(task, claimed.token) if finished else handback(task, claimed.token))
            return False
        work.end, work.crc = stands.end, stands.crc
        cursor = Cursor.decode(stands.cursor) if task.stage == "finish" else Cursor()
        is_untold = task.stage == "finish" and stands.end > 0 and claimed.heard.playing_s is None
        if cursor.segment > work.joined or is_untold:  # the predecessor appended, and could not say so
            self._client.run(advance(task, claimed.token, cursor.segment, stands.end))
            work.joined = cursor.segment
        work.inputs = input_logs(claimed, cursor.segment)
        replay = stands.end > 0 and runner.card.resume == "replay"
        output = read_whole(self._client, own) if own is not None and replay else b""
        resume = Resume(stands.end, output, stands.cursor)
        work.history = read_history(self._client, claimed)
        with self._lock:
            self._held[str(task)] = work
        self._assets.bring(work.assets, lambda: not work.gone, lambda found: self._open(runner, work, resume, found))
        return True

    def _open(self, runner: Runner, work: Work, resume: Resume, assets: Mapping[str, bytes] | None) -> None:
        """Open the slot, now that what the task needs is here; `assets` is None when it is not to be had."""
        if assets is None and not work.gone:
            runner.unreserve()
            self.failed(Failed(work, "generation_failed", "the reference recording is not kept any more", fatal=True))
            self.poke(runner.pool)
            return
        with self._lock:
            self._loop.put(Open(work, resume, assets or {}))  # one that is gone gives its place back there
            if not work.gone:
                self._follow_next(work)

    def _fence(self, work: Work) -> Fenced:
        assert work.log is not None
        claimed = work.claim
        call = fence(work.log, claimed.token, claimed.base, claimed.ttl_s, log_header(claimed))
        return self._client.run(call)

    # -- following --------------------------------------------------------------------------------------------------

    def _follow_next(self, work: Work) -> None:
        """Register with the first of the logs still to be read, and read what it holds."""
        if not work.inputs:
            return
        source = work.inputs[0]
        work.reader = LogReader(0, frame_bytes(source, work.claim.request.channels))
        work.last_input = time.monotonic()
        self._following[source.name] = work
        try:
            self._client.run(follow(source, self._worker, work.claim.ttl_s))
            self._read(work)
        except UNAVAILABLE as error:
            # the look after silence registers and reads again
            log.warning("server away", extra={"job": work.task.job, "error": str(error)})

    def _hint(self, work: Work, fields: dict[bytes, bytes]) -> None:
        assert work.reader is not None
        try:
            self._pass_on(work, work.reader.hint(fields))
        except Misaligned:
            self.drop(work, "input made again with other borders")
        except Hole:
            self._read(work)

    def _read(self, work: Work) -> None:
        """Read the log itself until nothing more is there."""
        reader, source = work.reader, work.inputs[0]
        assert reader is not None
        while work.reader is reader and not reader.ended:
            try:
                entries = self._client.read_log(source, reader.entry, READ_COUNT)
                if not entries:
                    return
                self._pass_on(work, reader.entries(entries))
            except Misaligned:
                self.drop(work, "input made again with other borders")
                return
            except Hole:
                if not self._recover(work):
                    return

    def _pass_on(self, work: Work, chunks: Sequence[LogChunk]) -> None:
        for chunk in chunks:
            work.last_input = time.monotonic()
            marks = tuple(Mark(mark.word, mark.start, mark.end) for mark in chunk.marks)
            final = chunk.trailer is not None
            self._loop.put(Feed(work, Chunk(chunk.start, chunk.end, chunk.payload, marks, final, chunk.trailer or {})))
            if final:
                self._input_ended(work)

    def _input_ended(self, work: Work) -> None:
        source = work.inputs.popleft()
        self._following.pop(source.name, None)
        self._follow_next(work)
        with suppress(*UNAVAILABLE):
            self._client.run(unfollow(source, self._worker))

    def _look_after_silence(self, server: Redis) -> None:
        """Hints may be lost, logs too: ask for the state of every silent input on this server, in one round trip.

        Not of those that this process writes: they are silent because their turn has not come.
        """
        with self._lock:
            now = time.monotonic()
            silent = [
                work
                for work in self._following.values()
                if max(work.last_input, work.last_look) < now - SILENCE_S
                and str(work.inputs[0].task) not in self._held
                and self._client.server(work.inputs[0].on) is server
            ]
            calls = [follow(work.inputs[0], self._worker, work.claim.ttl_s) for work in silent]
            for work, state in zip(silent, self._client.run_all(calls) if calls else [], strict=True):
                work.last_look = now
                self._look(work, state)

    def _look(self, work: Work, state: Followed | None) -> None:
        """Take what was missed; or have the log made again, if its writer thinks that it is done; or make room."""
        if work.gone or work.reader is None:
            return
        if state is None:
            self._recover(work)
        elif state.end != work.reader.position or state.trailer:
            self._read(work)
        elif self._client.run(reopen(work.inputs[0].task, work.reader.position)) == "reopened":
            log.warning("input was incomplete", extra={"job": work.task.job, "log": work.inputs[0].name})
        elif work.last_made < time.monotonic() - SILENCE_S and self._is_wanted(work):
            self.drop(work, "parked", parked=True)

    def _is_wanted(self, work: Work) -> bool:
        """Whether others wait for its place, and not for time: the batch is crowded, or the work has it for itself."""
        runner = self._loop.runners[work.pool]
        if not runner.crowded and not work.claim.solo:
            return False
        control, keys = self._client.server("control"), self._client.keys
        queues = READY_QUEUES if runner.waiting < MAX_WAITING else (ONGOING,)
        return any(control.xlen(keys.ready(runner.pool, name)) for name in queues)

    def _recover(self, work: Work) -> bool:
        """The input does not join on: read on from the spilled objects (True), or have it made again."""
        reader, source = work.reader, work.inputs[0]
        assert reader is not None
        work.last_input = time.monotonic()
        if source.task.stage == TEXT:
            self.failed(Failed(work, "generation_failed", "the text that was sent is not kept any more", fatal=True))
            return False
        try:
            spilled = self._spill.read(source, reader.position) if source.task.stage == "finish" else None
        except StoreUnavailable as error:
            log.warning("store away", extra={"job": work.task.job, "error": str(error)})
            return False
        if spilled:
            self._pass_on(work, reader.spilled(*spilled))
            return True
        answer = self._client.run(reopen(source.task, reader.position))
        if answer != "running":  # else it waits its turn, or begins again
            log.warning("input lost", extra={"job": work.task.job, "log": source.name, "answer": answer})
        if answer == "closed":
            self.drop(work, "closed")
        return False

    def drop(self, work: Work, why: str, parked: bool = False) -> None:
        """The task is not ours any more: free its slot and give it back, if there is anything to give."""
        work.gone = True
        self._loop.put(Drop(work))
        self.let_go(work)
        log.info("dropped", extra={"job": work.task.job, "stage": work.task.stage, "why": why})
        with suppress(*UNAVAILABLE):  # the lease lapses then
            self._client.run(handback(work.task, work.claim.token, parked=parked))
