"""The player of the load generators."""

import time

import pytest

from speechmill.cli.bench.hearing import RATE, Heard


def test_a_player_that_runs_dry_stands_still_and_plays_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    heard = Heard()
    heard.begin()
    for later, seconds in ((2.0, 1.0), (0.5, 1.0), (2.0, 0.25), (0.25, 1.0), (1.5, 1.0)):
        now += later
        heard.take(round(2 * RATE * seconds))
    assert (heard.first_s, heard.audio_s) == (2.0, 4.25)
    assert heard.gaps_s == pytest.approx([0.5, 0.5]), "it is not late for ever after the first"
    assert heard.longest_gap_s == pytest.approx(0.5)
    assert Heard().longest_gap_s == 0
