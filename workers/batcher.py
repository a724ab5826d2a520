"""Who runs in the next step."""

from collections.abc import Sequence

from speechmill.configs.settings import Scheduling
from speechmill.workers.runner import Runner
from speechmill.workers.urgency import NEVER, Arrivals, Deadlines, Urgency
from speechmill.workers.work import Work

Order = Arrivals | Deadlines
ORDERS: dict[Scheduling, type[Order]] = {"arrival": Arrivals, "deadline": Deadlines}


def pick(runners: Sequence[Runner], now: float, scheduling: Scheduling) -> tuple[Runner, list[Work]] | None:
    """The stage and batch of the next step: light stages at once, else the most urgent; in doubt the first given.

    `now`: monotonic clock. A batch has the most urgent first.
    """
    for runner in runners:
        if runner.light and (works := runner.able()):
            return runner, works
    order = ORDERS[scheduling]([runner for runner in runners if not runner.light], now)
    best, best_urgency = None, NEVER
    for runner, works in order.able.items():
        ranked = rank(works, runner, order)
        if ranked and ranked[0][0] < best_urgency:
            best, best_urgency = (runner, order.batch(ranked, runner)), ranked[0][0]
    return best


def rank(works: Sequence[Work], runner: Runner, order: Order) -> list[tuple[Urgency, Work]]:
    """Those that need not wait, the most urgent first."""
    urgencies = [(order.urgency(work, runner), work) for work in works]
    return sorted([pair for pair in urgencies if pair[0] < NEVER], key=lambda pair: pair[0])
