"""What a key may use: rates that fill evenly, quotas of periods, seats."""

import time

import pytest

from speechmill.configs.settings import KeyLimits
from speechmill.infra.client import Client
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.infra.keys import Keys
from speechmill.infra.quota import Charged, account, charge, rise, sit


@pytest.fixture
def client(valkey: EmbeddedValkey, prefix: str) -> Client:
    client = Client(valkey.url, valkey.url, Keys(prefix))
    client.load()
    return client


def test_a_minute_holds_so_many_requests_and_tells_when_the_next_one_may_come(client: Client) -> None:
    limits = KeyLimits(requests_per_minute=2)
    answers = [client.run(charge("k", limits, 1, 10)) for _ in range(3)]
    assert [answer.verdict for answer in answers] == ["ok", "ok", "requests"]
    assert [answer.requests_left for answer in answers] == [1, 0, 0]
    assert 28 < answers[2].wait_s <= 30
    assert 55 < answers[2].requests_reset_s <= 60
    assert answers[0].characters_left is None


def test_a_refused_charge_takes_nothing(client: Client) -> None:
    limits = KeyLimits(requests_per_minute=5, characters_per_minute=100)
    assert client.run(charge("k", limits, 1, 80)).verdict == "ok"
    refused = client.run(charge("k", limits, 1, 50))
    assert (refused.verdict, refused.requests_left, refused.characters_left) == ("characters", 4, 20)
    assert client.run(charge("k", limits, 1, 20)).verdict == "ok"


def test_a_rate_comes_back_with_time(client: Client) -> None:
    limits = KeyLimits(requests_per_minute=600)  # one each 100 ms
    for _ in range(600):
        client.run(charge("k", limits, 1, 0))
    time.sleep(0.25)
    assert client.run(charge("k", limits, 1, 0)).verdict == "ok"


def test_characters_that_were_refused_later_are_given_back(client: Client) -> None:
    limits = KeyLimits(characters_per_minute=100, characters_per_day=100)
    client.run(charge("k", limits, 1, 90))
    client.run(account("k", 90, 0))
    again = client.run(charge("k", limits, 1, 90))
    assert again.verdict == "ok"


def test_keys_do_not_share(client: Client) -> None:
    limits = KeyLimits(requests_per_minute=1)
    assert [client.run(charge(key, limits, 1, 0)).verdict for key in ("a", "b", "a")] == ["ok", "ok", "requests"]


@pytest.mark.parametrize("period", ["day", "month"])
def test_a_quota_of_characters_ends(client: Client, period: str) -> None:
    limits = KeyLimits.model_validate({f"characters_per_{period}": 100})
    verdicts = [client.run(charge("k", limits, 1, 60)).verdict for _ in range(2)]
    assert verdicts == ["ok", "quota"]


def test_a_quota_of_audio_counts_what_was_made(client: Client) -> None:
    limits = KeyLimits(audio_seconds_per_day=10)
    assert client.run(charge("k", limits, 1, 5)).verdict == "ok"
    client.run(account("k", 0, 9_000))
    assert client.run(charge("k", limits, 1, 5)).verdict == "ok"
    client.run(account("k", 0, 1_500))
    over = client.run(charge("k", limits, 1, 5))
    assert over.verdict == "quota"
    assert 0 < over.wait_s <= 86_401


def test_asking_takes_nothing(client: Client) -> None:
    limits = KeyLimits(requests_per_minute=1, characters_per_day=1)
    asked: list[Charged] = [client.run(charge("k", limits, 0, 0)) for _ in range(3)]
    assert {(answer.verdict, answer.requests_left) for answer in asked} == {("ok", 1)}


def test_seats_are_few_and_are_freed(client: Client) -> None:
    assert client.run(sit("s", "a", 2, 60)) == (True, 1)
    assert client.run(sit("s", "b", 2, 60)) == (True, 2)
    assert client.run(sit("s", "c", 2, 60)) == (False, 2)
    assert client.run(sit("s", "a", 2, 60)) == (True, 2)
    client.run(rise("s", "a"))
    assert client.run(sit("s", "c", 2, 60)) == (True, 2)


def test_a_seat_lapses_when_its_holder_dies(client: Client) -> None:
    client.run(sit("s", "a", 1, 0.05))
    time.sleep(0.1)
    assert client.run(sit("s", "b", 1, 60)) == (True, 1)
