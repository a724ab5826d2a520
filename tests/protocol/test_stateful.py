"""The real functions under everything that can happen at once, checked after every step and at the end."""

import itertools
import zlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from speechmill.infra import jobs, protocol
from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.jobs import TERMINAL
from speechmill.infra.keys import FARM_STAGES, Keys, LogRef, Task, new_id, out_log
from speechmill.infra.messages import Claim
from speechmill.infra.protocol import Call, Hole, LogReader

from .farm import CODEC, ENCODE, FINISH, KEEP, LEASE_MS, RECORDING, STORE, TALKER, TTL_S, Farm
from .hands import SAMPLE, Hand, audio, codes, samples, unpack

POOLS = (TALKER, CODEC, FINISH, STORE, ENCODE, KEEP)
WORKERS = ("w1", "w2", "w3")
MOST_JOBS = 3
WHOLE = ("talker", "encode")
"""Stages whose chunks cannot be cut."""
TEXTS = st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=3).map(tuple)


class Listener:
    """Hears one take of a job, by hints and by reading."""

    def __init__(self, farm: Farm, job: str, take: int) -> None:
        self.farm = farm
        self.log = out_log(job, take)
        self.name = new_id("ear")
        self.reader = LogReader(0, SAMPLE)
        self.heard = b""
        self.seen = farm.server.xadd(farm.keys.inbox(self.name), {"hello": "1"}).decode()
        farm.server.expire(farm.keys.inbox(self.name), TTL_S)
        farm.run(protocol.follow(self.log, self.name, TTL_S))

    def listen(self) -> None:
        news = self.farm.server.xrange(self.farm.keys.inbox(self.name), f"({self.seen}", "+", 2)
        try:
            for entry, fields in news:
                self.seen = entry.decode()
                self.heard += b"".join(chunk.payload for chunk in self.reader.hint(fields))
        except Hole:
            self.read()

    def read(self) -> None:
        try:
            chunks = self.reader.entries(self.farm.client.read_log(self.log, self.reader.entry, 3))
        except Hole:
            self.farm.run(protocol.reopen(self.log.task, self.reader.position))
        else:
            self.heard += b"".join(chunk.payload for chunk in chunks)


def epoch(token: str) -> int:
    return int(token.split(":")[0])


class Storm(RuleBasedStateMachine):
    """Jobs, workers with many hands, listeners, and faults."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.farm = Farm(client)
        self.texts: dict[str, tuple[str, ...]] = {}
        self.recordings: set[str] = set()
        """Jobs that encode one."""
        self.hands: dict[str, list[Hand]] = {worker: [] for worker in WORKERS}
        self.listeners: list[Listener] = []
        self.sent: list[Call[Any]] = []
        self.moves = 0
        """Since a job was last ended."""
        self.ended: set[str] = set()
        """Jobs that somebody ended on purpose, in their last take."""

    # -- how commands are sent ----------------------------------------------------------------------------------------

    def once(self, call: Call[Any]) -> Any:
        self.sent = [*self.sent[-30:], call]
        before = self.log_token(call) if call.function == "fence" else ""
        answer = self.farm.run(call)
        said = getattr(answer, "state", answer)
        if said == "ok" and call.function in ("fence", "emit", "seal"):
            assert self.log_token(call) == call.args[1]
            assert not before or epoch(before) <= epoch(str(call.args[1]))
        elif said == "ok" and call.function in ("commit", "advance", "handback"):
            assert self.farm.task(Task.parse(str(call.args[0])))["token"] == call.args[1]
        return answer

    def log_token(self, call: Call[Any]) -> str:
        """Who may write the log that the call is about."""
        token = self.farm.server.hget(f"{self.farm.keys.root}:log:{call.args[0]}:meta", "token")
        return token.decode() if token else ""

    def twice(self, call: Call[Any]) -> Any:
        """The first answer was lost."""
        self.once(call)
        return self.farm.run(call)

    def sender(self, again: bool) -> Callable[[Call[Any]], Any]:
        return self.twice if again else self.once

    # -- work ---------------------------------------------------------------------------------------------------------

    @initialize(texts=TEXTS)
    def begin(self, texts: tuple[str, ...]) -> None:
        self.submit(texts, "independent", 2)

    @precondition(lambda self: len(self.texts) < MOST_JOBS)
    @rule(texts=TEXTS, order=st.sampled_from(("independent", "chained", "first_then_rest")), ahead=st.integers(0, 2))
    def submit(self, texts: tuple[str, ...], order: str, ahead: int) -> None:
        job = self.farm.submit(segments=texts, order=order, ahead=ahead, max_attempts=1000, retention_s=TTL_S)
        self.texts[job] = texts
        self.listeners.append(Listener(self.farm, job, 1))

    @precondition(lambda self: len(self.texts) < MOST_JOBS)
    @rule(text=st.text("abc", min_size=1, max_size=12))
    def submit_recording(self, text: str) -> None:
        job = self.farm.submit(segments=(text,), max_attempts=1000, retention_s=TTL_S, **RECORDING)
        self.texts[job] = (text,)
        self.recordings.add(job)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), worker=st.sampled_from(WORKERS), again=st.booleans())
    def claim(self, data: st.DataObject, worker: str, again: bool) -> None:
        self.claim_from(data.draw(st.sampled_from(self.waiting())), worker, again)

    def waiting(self) -> list[str]:
        return [pool for pool in POOLS if self.farm.ready(pool)]

    def claim_from(self, pool: str, worker: str, again: bool = False) -> None:
        nonce = f"{worker}.{next(self.farm.nonces)}"
        claimed = self.sender(again)(protocol.claim(pool, worker, nonce, LEASE_MS, 0))
        if isinstance(claimed, Claim):
            self.hands[worker].append(Hand(self.farm.client, claimed, self.once))

    @precondition(lambda self: self.all_hands())
    @rule(data=st.data(), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6), again=st.booleans())
    def work(self, data: st.DataObject, sizes: list[int], again: bool) -> None:
        worker, hand = data.draw(st.sampled_from(self.all_hands()))
        self.move(worker, hand, sizes, again)

    @rule(workers=st.lists(st.sampled_from(WORKERS), min_size=1, max_size=4), size=st.integers(1, 3))
    def bustle(self, workers: list[str], size: int) -> None:
        """Ordinary days: what waits is claimed, and everybody does a step."""
        for worker in workers:
            for pool in self.waiting():
                self.claim_from(pool, worker)
            self.work_all(size)

    def work_all(self, size: int) -> None:
        for worker, hand in self.all_hands():
            self.move(worker, hand, [size])

    def all_hands(self) -> list[tuple[str, Hand]]:
        return [(worker, hand) for worker in WORKERS for hand in self.hands[worker]]

    def move(self, worker: str, hand: Hand, sizes: list[int], again: bool = False) -> None:
        hand.send = self.sender(again)
        self.moves += 1
        for size in sizes:
            if not hand.step(size):
                self.hands[worker].remove(hand)
                return

    @rule(worker=st.sampled_from(WORKERS), drain=st.booleans())
    def renew(self, worker: str, drain: bool) -> None:
        hands = [hand for hand in self.hands[worker] if not hand.leaving]
        held = [(hand.task, hand.claimed.token, hand.end) for hand in hands]
        for hand, answer in zip(hands, self.farm.run(protocol.renew(LEASE_MS, held)), strict=True):
            hand.renewed(answer.verdict, answer.heard.joined)
            hand.leaving = hand.leaving or drain

    @rule(data=st.data())
    def listen(self, data: st.DataObject) -> None:
        if self.listeners:
            data.draw(st.sampled_from(self.listeners)).listen()

    # -- faults -------------------------------------------------------------------------------------------------------

    @rule(worker=st.sampled_from(WORKERS))
    def crash(self, worker: str) -> None:
        self.hands[worker] = []

    @precondition(lambda self: self.all_hands())
    @rule(data=st.data(), worker=st.sampled_from((*WORKERS, "")))
    def lapse(self, data: st.DataObject, worker: str) -> None:
        """A lease runs out; somebody else may take over at once, and the old owner does not know."""
        _, hand = data.draw(st.sampled_from(self.all_hands()))
        self.expire([str(hand.task)])
        self.farm.reap()
        if worker:
            stage = hand.task.stage
            self.claim_from(f"farm/{stage}" if stage in FARM_STAGES else f"toy/{stage}", worker)
            for successor in self.hands[worker][-1:]:
                successor.step(1)

    def expire(self, tasks: list[str]) -> None:
        for task in tasks:
            self.farm.server.zadd(f"{self.farm.keys.root}:leases", {task: 1}, xx=True)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """A command of some time ago, once more."""
        self.farm.run(data.draw(st.sampled_from(self.sent)))

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        logs = self.logs()
        if logs:
            self.farm.lose(data.draw(st.sampled_from(logs)))

    @rule(on=st.booleans())
    def pressure(self, on: bool) -> None:
        if on:
            self.farm.server.set(self.farm.keys.pressure(), 1, ex=60)
        else:
            self.farm.server.delete(self.farm.keys.pressure())

    @precondition(lambda self: self.moves > 8)
    @rule(data=st.data(), state=st.sampled_from(("cancelled", "failed", "expired")), settled=st.booleans())
    def end(self, data: st.DataObject, state: str, settled: bool) -> None:
        self.moves = 0
        job = data.draw(st.sampled_from(sorted(self.texts)))
        if self.farm.end_job(job, state) != "succeeded":
            self.ended.add(job)
        if settled:
            jobs.settle(self.farm.client, job, TTL_S)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.ended)))
        if self.farm.run(protocol.retry(job)) == "ok":
            self.ended.remove(job)
            self.listeners.append(Listener(self.farm, job, self.farm.record(job).take))

    # -- what must hold -----------------------------------------------------------------------------------------------

    def logs(self) -> list[LogRef]:
        names = [name.split(":log:")[1] for name in self.farm.names("log:*") if not name.endswith((":meta", ":subs"))]
        tasks = [Task.parse(name) for name in sorted(names)]
        return [LogRef(task, "control" if task.stage in WHOLE else "chunks") for task in tasks]

    @invariant()
    def logs_hold_what_they_should(self) -> None:
        for log in self.logs():
            self.check_log(log)

    def check_log(self, log: LogRef) -> None:
        texts = self.texts[log.task.job]
        text = texts[log.task.segment or 0]
        spoken = codes(text)
        made = {"talker": spoken, "encode": spoken, "codec": samples(spoken), "finish": audio(texts)}
        whole = made[log.task.stage]
        width = 1 if log.task.stage in WHOLE else SAMPLE
        reach = -1
        for entry, fields in self.farm.server.xrange(self.farm.keys.log(log)):
            end = int(entry.split(b"-")[0])
            if b"d" in fields:
                start = int(fields[b"s"])
                payload = unpack(fields[b"d"]) if log.task.stage in WHOLE else fields[b"d"]
                assert reach in (-1, start)
                assert payload == whole[width * start : width * end]
                reach = end
            elif b"error" not in fields[b"t"]:
                assert end == len(whole) // width

    @invariant()
    def what_is_heard_is_never_doubled_and_has_no_gap(self) -> None:
        for listener in self.listeners:
            assert audio(self.texts[listener.log.task.job]).startswith(listener.heard)

    @invariant()
    def counters_agree(self) -> None:
        self.farm.assert_counters_agree()

    # -- the end ------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Faults are over: every job comes to its end, and is heard and stored whole."""
        self.farm.server.delete(self.farm.keys.pressure())
        for turn in itertools.count():
            if all(self.farm.state(job) in TERMINAL for job in self.texts):
                break
            assert turn < 300, [self.farm.record(job) for job in self.texts]
            self.let_the_dead_lapse()
            self.take_a_turn(turn)
        for job in self.texts:
            self.check_end(job)
        for name in self.farm.names("*"):
            self.farm.server.delete(name)

    def let_the_dead_lapse(self) -> None:
        alive = {str(hand.task) for _, hand in self.all_hands()}
        leases = self.farm.server.zrange(f"{self.farm.keys.root}:leases", 0, -1)
        self.expire([task.decode() for task in leases if task.decode() not in alive])
        self.farm.reap()

    def take_a_turn(self, turn: int) -> None:
        for pool in (TALKER, ENCODE, *self.waiting()):
            self.claim_from(pool, WORKERS[turn % len(WORKERS)])
        for worker in WORKERS:
            self.renew(worker, False)
        self.work_all(1 + turn % 3)
        for listener in self.listeners:
            listener.listen()

    def check_end(self, job: str) -> None:
        record, texts = self.farm.record(job), self.texts[job]
        whole = codes(texts[0]) if job in self.recordings else audio(texts)
        if job not in self.ended:
            assert record.state == "succeeded", record
            assert record.result == {"crc": zlib.crc32(whole), "bytes": len(whole)}
        self.farm.assert_gone_in_time(job)
        self.farm.assert_counters_agree()


def test_whatever_happens_every_job_ends_and_nothing_is_said_twice(valkey: EmbeddedValkey) -> None:
    client = Client(valkey.url, valkey.url, Keys())
    client.load()

    def storm() -> Storm:
        client.keys = Keys(f"test-{uuid4().hex[:12]}:")
        return Storm(client)

    quick = settings(max_examples=120, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(storm, settings=quick)
    client.close()
