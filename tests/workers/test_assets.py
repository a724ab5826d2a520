"""Recordings and features on their way from the object store to the stages."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from queue import Queue

import pytest

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.jobs import end
from speechmill.infra.keys import new_id
from speechmill.infra.objects import ObjectMissing
from speechmill.workers import assets as assets_module
from speechmill.workers.assets import IDLE_S, THREADS, Assets

from .toy import ToyFarm, pcm_of

Taken = Mapping[str, bytes] | None


class Shelf:
    """An object store that counts, and may be away."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects
        self.away = threading.Event()
        self.asked: list[str] = []

    def get(self, key: str) -> Iterator[bytes]:
        self.asked.append(key)
        if self.away.is_set():
            raise StoreUnavailable("away")
        if key not in self.objects:
            raise ObjectMissing(key)
        return iter((self.objects[key][:1], self.objects[key][1:]))


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Assets]]:
    started: list[Assets] = []
    monkeypatch.setattr(assets_module, "RETRY_S", 0.01)

    def build(shelf: Shelf, room_bytes: int = 100, clock: Callable[[], float] = time.monotonic) -> Assets:
        made = Assets(shelf, room_bytes, clock)  # type: ignore[arg-type]
        made.start()
        started.append(made)
        return made

    yield build
    for made in started:
        made.stop()


def brought(assets: Assets, wanted: Callable[[], bool] = lambda: True, **keys: str) -> Taken:
    """What is brought, however long it takes."""
    taken: Queue[Taken] = Queue()
    assets.bring(keys, wanted, taken.put)
    return taken.get(timeout=10)


def wait_for(true: Callable[[], object], within_s: float = 10) -> None:
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_contents_are_brought_under_their_names(start: Callable[..., Assets]) -> None:
    assets = start(Shelf(a=b"one", b=b"two"))
    assert brought(assets, clip="a", features="b") == {"clip": b"one", "features": b"two"}


def test_what_nobody_asks_for_any_more_is_forgotten(start: Callable[..., Assets]) -> None:
    now = [0.0]
    shelf = Shelf(a=b"one", b=b"two")
    assets = start(shelf, clock=lambda: now[0])
    brought(assets, clip="a")
    brought(assets, clip="b")
    now[0] += IDLE_S / 2
    brought(assets, clip="a")
    now[0] += IDLE_S / 2
    assets.tidy()
    shelf.asked.clear()
    brought(assets, clip="a")
    brought(assets, clip="b")
    assert shelf.asked == ["b"], "only what was asked for lately is at hand"


def test_what_was_brought_before_is_at_hand_at_once(start: Callable[..., Assets]) -> None:
    shelf = Shelf(a=b"one")
    assets = start(shelf)
    brought(assets, clip="a")
    shelf.away.set()
    taken: list[Taken] = []
    assets.bring({"clip": "a"}, lambda: True, taken.append)
    assert taken == [{"clip": b"one"}]


def test_nothing_is_brought_at_once(start: Callable[..., Assets]) -> None:
    taken: list[Taken] = []
    start(Shelf()).bring({}, lambda: True, taken.append)
    assert taken == [{}]


def test_what_was_not_used_for_longest_makes_room(start: Callable[..., Assets]) -> None:
    shelf = Shelf(a=b"1234", b=b"1234", c=b"1234")
    assets = start(shelf, room_bytes=10)
    for key in ("a", "b", "a", "c", "a", "b"):
        brought(assets, clip=key)
    assert shelf.asked == ["a", "b", "c", "b"]


def test_what_has_no_room_is_brought_all_the_same_and_drives_nothing_out(start: Callable[..., Assets]) -> None:
    shelf = Shelf(small=b"1234", large=bytes(11))
    assets = start(shelf, room_bytes=10)
    for key in ("small", "large", "large", "small"):
        assert brought(assets, clip=key) == {"clip": shelf.objects[key]}
    assert shelf.asked == ["small", "large", "large"]


def test_a_missing_object_is_said_so(start: Callable[..., Assets]) -> None:
    assert brought(start(Shelf(a=b"one")), clip="a", features="b") is None


def test_a_store_that_is_away_is_asked_again(start: Callable[..., Assets]) -> None:
    shelf = Shelf(a=b"one")
    shelf.away.set()
    taken: Queue[Taken] = Queue()
    start(shelf).bring({"clip": "a"}, lambda: True, taken.put)
    wait_for(lambda: len(shelf.asked) > 2)
    shelf.away.clear()
    assert taken.get(timeout=10) == {"clip": b"one"}


def test_what_nobody_wants_any_more_is_not_asked_for(start: Callable[..., Assets]) -> None:
    shelf = Shelf()
    shelf.away.set()
    assert brought(start(shelf), lambda: len(shelf.asked) < 3, clip="a") is None
    assert len(shelf.asked) == 3


# -- in a worker ------------------------------------------------------------------------------------------------------


@pytest.fixture
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str) -> Iterator[ToyFarm]:
    farm = ToyFarm(valkey, s3, prefix)
    yield farm
    farm.stop()


def leased(farm: ToyFarm) -> int:
    return sum(int(count) for count in farm.client.read_hash(farm.client.keys.leased()).values())


def test_a_model_s_stage_gets_what_the_request_names(farm: ToyFarm) -> None:
    toy, _ = farm.start()
    assets = {"clip": farm.put(new_id("clip"), b"hear me"), "features": farm.put(new_id("features"), b"numbers")}
    job = farm.submit("one", "two", assets=assets)
    assert farm.state(job) == "succeeded"
    assert [task.assets for task in toy.tasks] == [{"clip": b"hear me", "features": b"numbers"}] * 2
    assert farm.stored(job) == pcm_of("one") + pcm_of("two")


def test_a_missing_recording_fails_its_job_and_nothing_else(farm: ToyFarm) -> None:
    farm.start(slots=1)
    job = farm.submit("one", assets={"clip": new_id("clip")})
    assert farm.state(job) == "failed"
    assert farm.record(job).error == {
        "code": "generation_failed",
        "message": "the reference recording is not kept any more",
    }
    assert farm.state(farm.submit("two")) == "succeeded"
    wait_for(lambda: leased(farm) == 0)


def test_tasks_that_wait_for_the_store_hold_up_no_others(farm: ToyFarm, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = 2 * THREADS
    _, worker = farm.start(slots=waiting + 1)
    shelf = Shelf(a=b"one")
    shelf.away.set()
    monkeypatch.setattr(worker._assets, "_objects", shelf)
    blocked = [farm.submit("first", assets={"clip": "a"}) for _ in range(waiting)]
    wait_for(lambda: shelf.asked)
    assert farm.state(farm.submit("second")) == "succeeded"
    assert {farm.record(job).state for job in blocked} <= {"queued", "running"}
    shelf.away.clear()
    assert {farm.state(job) for job in blocked} == {"succeeded"}


def test_a_job_that_is_cancelled_while_it_waits_for_the_store_gives_its_slot_back(
    farm: ToyFarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, worker = farm.start(slots=1)
    shelf = Shelf()
    shelf.away.set()
    monkeypatch.setattr(worker._assets, "_objects", shelf)
    job = farm.submit("first", assets={"clip": "a"})
    wait_for(lambda: shelf.asked)
    end(farm.client, job, "cancelled", "", 60)
    assert farm.state(job) == "cancelled"
    assert farm.state(farm.submit("second")) == "succeeded"
