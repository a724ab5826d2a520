"""Nothing is said twice, nothing is lost, whatever is killed."""

import random
import signal
import threading
import time

from .harness import STAGES, Farm, assert_same_pcm, eventually

SENTENCES = (
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "It is easy to tell the depth of a well.",
    "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.",
)
JOBS = 40
LEASE_S = 2.0


def _texts(number: int) -> list[str]:
    return [SENTENCES[(number + k) % len(SENTENCES)] for k in range(2 + number % 3)]


class Witness(threading.Thread):
    """Reads `out` logs over and over: what was once there must stay as it is."""

    def __init__(self, farm: Farm, jobs: list[str]) -> None:
        super().__init__(daemon=True)
        self.farm, self.jobs = farm, jobs
        self.seen = dict.fromkeys(jobs, b"")
        self.changed: list[str] = []
        self.stop = False

    def run(self) -> None:
        while not self.stop:
            for job in self.jobs:
                now = self.farm.out(job)
                if not now.startswith(self.seen[job]):
                    self.changed.append(job)
                self.seen[job] = now
            time.sleep(0.05)


def _speak_all(farm: Farm) -> list[str]:
    return [farm.submit(_texts(number), seed=number, live=number % 4 != 0) for number in range(JOBS)]


def test_forty_jobs_come_out_the_same_while_workers_of_every_stage_are_killed_and_one_is_frozen(farm: Farm) -> None:
    farm.settings["SPEECHMILL_WORKER__LEASE_S"] = str(LEASE_S)
    farm.settings["SPEECHMILL_WORKER__MAX_ATTEMPTS"] = "50"  # every kill hits the same few tasks here
    for stage in STAGES:
        farm.start_worker([stage], stage)
    farm.await_workers()
    undisturbed = _speak_all(farm)
    farm.await_end(undisturbed, 120)
    wanted = [farm.out(job) for job in undisturbed]

    jobs = _speak_all(farm)
    witness = Witness(farm, jobs)
    witness.start()
    _disturb(farm, random.Random(7))
    farm.await_end(jobs, 180)
    witness.stop = True
    witness.join()

    assert [farm.record(job).state for job in jobs] == ["succeeded"] * JOBS
    assert not witness.changed
    again = {name.rsplit("/", 1)[1] for job in jobs for name, claims in farm.claims(job).items() if claims > 1}
    assert again == set(STAGES), "every stage was interrupted in its work"
    for job, pcm in zip(jobs, wanted, strict=True):
        assert_same_pcm(farm.out(job), pcm)
        assert farm.stored(job) == farm.out(job)


def _disturb(farm: Farm, dice: random.Random) -> None:
    """Kill a worker of every stage at random moments, freeze one beyond its lease and let it go on."""
    farm.start_worker(["decoder"], "second decoder")
    for stage in dice.sample(STAGES, len(STAGES)):
        time.sleep(dice.uniform(0.1, 0.8))
        eventually(lambda held=stage: farm.leased(held) > 0, 60, f"{stage} is at work")
        farm.kill(stage)
        farm.start_worker([stage], stage)
    eventually(lambda: farm.leased("decoder") > 0, 60, "the decoders are at work")
    frozen = farm.processes["second decoder"]
    frozen.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_S * 2)
    frozen.send_signal(signal.SIGCONT)
