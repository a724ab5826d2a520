"""The stage log protocol in small, as pure functions over immutable states, for a walk through every interleaving.

Two tasks: a producer writes a few frames into its log, a reader takes them, always from 0 on, and appends to `out`
what is not there yet; its commit ends the job. Two workers hold one task each, either one. A command and its answer
are one step, and between any two steps anything else may happen: a lease that lapses while its owner goes on is a
pause; a command that ran but is sent again is a lost answer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SIZES = (1, 2)
NONCES = 4
MANY_CLAIMS = 7
"""Within the faults explored here no task is ever claimed so often: where one was, the farm goes round in circles."""
PRODUCER, READER = 0, 1
TERMINAL = ("succeeded", "failed", "cancelled")

Token = tuple[int, int]
"""Epoch and nonce."""


class Task(NamedTuple):
    state: str = "none"
    token: Token = (0, 0)
    owned: bool = False
    attempts: int = 0
    pos: int = 0
    mark: int = 0
    base: int = -1


class Entry(NamedTuple):
    start: int
    end: int
    token: Token
    content: int
    """Which frame the first one really is; equal to `start`, or something was doubled or skipped."""


class Log(NamedTuple):
    token: Token
    first: int = 0
    entries: tuple[Entry, ...] = ()
    trailer: bool = False
    closed: bool = False

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.first


class Worker(NamedTuple):
    step: str = "idle"
    """idle, claimed, open, missing (about to call for a reopening), sealed, leaving (about to hand back)."""
    task: int = -1
    token: Token = (0, 0)
    base: int = -1
    end: int = 0
    position: int = 0
    """How far a reader has read."""
    sent: tuple[int, ...] = ()
    """(content, frames) of an append whose answer was lost."""
    asked: tuple[int | Token, ...] = ()
    """The claim whose answer was lost."""


class State(NamedTuple):
    job: str = "running"
    tasks: tuple[Task, Task] = (Task(state="ready"), Task())
    logs: tuple[Log | None, Log | None] = (None, None)
    workers: tuple[Worker, ...] = (Worker(), Worker())
    faults: int = 0
    """How many more may happen."""


class Violation(Exception):
    """A rule of the protocol was broken; the text says which."""


@dataclass(frozen=True)
class Rules:
    """What the protocol at hand does; `off` names single rules that it leaves out."""

    off: frozenset[str] = field(default_factory=frozenset)
    cuttable: bool = True
    """Chunks may be cut, as PCM; codes may not."""
    frames: int = 2
    max_attempts: int = 0
    """0: more than there can be faults, so that nobody need count them."""

    def on(self, rule: str) -> bool:
        return rule not in self.off


class Step(NamedTuple):
    name: str
    after: State
    fault: bool = False
    """A fault or the cancel: nothing that liveness may count on."""


def demand(holds: bool, law: str) -> None:
    if not holds:
        raise Violation(law)


# -- what the functions do --------------------------------------------------------------------------------------------


def with_task(s: State, index: int, **changes: object) -> State:
    tasks = list(s.tasks)
    tasks[index] = tasks[index]._replace(**changes)
    return s._replace(tasks=(tasks[0], tasks[1]))


def with_log(s: State, index: int, log: Log | None) -> State:
    return s._replace(logs=(log, s.logs[1]) if index == PRODUCER else (s.logs[0], log))


def standing(s: State, index: int, token: Token, rules: Rules) -> str:
    task = s.tasks[index]
    if rules.on("owner functions check the token") and task.token != token:
        return "fenced"
    if task.state == "done":
        return "done"
    if task.state != "leased":
        return "fenced"
    if s.job != "running":
        return "closed"
    demand(task.token == token, "an old token had its way with the task")
    return "ok"


def claim(s: State, index: int, rules: Rules) -> tuple[State, Token]:
    old = s.tasks[index].token
    token = (old[0] + 1 if rules.on("a claim has a new epoch") else 1, old[1] % NONCES + 1)
    s = with_task(s, index, state="leased", token=token, owned=True)
    if index == PRODUCER and s.tasks[READER].state == "none":
        s = with_task(s, READER, state="ready")
    return s, token


def fence(s: State, index: int, token: Token, base: int, rules: Rules) -> tuple[State, str]:
    log = s.logs[index]
    if log is not None:
        if log.closed:
            return s, "closed"
        if log.token != token and token[0] <= log.token[0] and rules.on("fence refuses older tokens"):
            return s, "fenced"
    again = log is not None and 0 <= base < log.first and rules.on("fence makes a log again from an earlier base")
    if log is None or again:
        log = Log(token, first=max(base, 0))
    return with_log(s, index, log._replace(token=token)), "ok"


def emit(s: State, index: int, token: Token, start: int, sent: tuple[int, ...], rules: Rules) -> tuple[State, str]:
    log, (content, frames) = s.logs[index], sent
    if log is None:
        return s, "lost"
    if log.token != token and rules.on("emit checks the token"):
        return s, "fenced"
    if log.closed:
        return s, "closed"
    if rules.on("emit checks the position"):
        last = log.entries[-1] if log.entries else None
        if last is not None and (last.start, last.end) == (start, start + frames):
            return s, "ok"
        if start != log.end or log.trailer:
            return s, "lost"
    entry = Entry(log.end, log.end + frames, token, content)
    demand(log.token == token, "an old token appended")
    demand(not log.closed, "something was appended after the end")
    return with_log(s, index, log._replace(entries=(*log.entries, entry))), "ok"


def seal(s: State, index: int, token: Token, rules: Rules) -> tuple[State, str]:
    log = s.logs[index]
    if log is None:
        return s, "lost"
    if log.token != token and rules.on("seal checks the token"):
        return s, "fenced"
    if log.closed:
        return s, "closed"
    return with_log(s, index, log._replace(trailer=True)), "ok"


def terminate(s: State, job: str) -> State:
    for index in (PRODUCER, READER):
        s = with_task(s, index, owned=False)
    return s._replace(job=job)


def settle(s: State, rules: Rules) -> State:
    if s.job == "cancelling" and not any(task.owned for task in s.tasks) and rules.on("the last owner ends a cancel"):
        return terminate(s, "cancelled")
    return s


def commit(s: State, index: int, token: Token, rules: Rules) -> tuple[State, str]:
    verdict = standing(s, index, token, rules)
    if verdict == "done":
        return s, "ok"
    if verdict != "ok":
        return s, verdict
    s = with_task(s, index, state="done", owned=False, base=-1)
    return (terminate(s, "succeeded") if index == READER else s), "ok"


def handback(s: State, index: int, token: Token, rules: Rules) -> State:
    verdict = standing(s, index, token, rules)
    if verdict not in ("ok", "closed"):
        return s
    s = with_task(s, index, owned=False, state="free" if verdict == "closed" else "ready")
    return settle(s, rules) if verdict == "closed" else s


def reopen(s: State, position: int, rules: Rules) -> State:
    task = s.tasks[PRODUCER]
    if s.job != "running" or task.state != "done" or not rules.on("reopen wakes a finished task"):
        return s
    return with_task(s, PRODUCER, state="ready", base=position if rules.cuttable else 0)


def reap(s: State, index: int, rules: Rules) -> State:
    task = s.tasks[index]
    s = with_task(s, index, owned=False)
    if s.job != "running":
        return settle(s, rules)
    if rules.max_attempts and task.pos == task.mark:
        s = with_task(s, index, attempts=task.attempts + 1)
        if task.attempts + 1 >= rules.max_attempts:
            return terminate(s, "failed")
    ready = "ready" if rules.on("reap makes the task ready again") else "free"
    return with_task(s, index, state=ready, mark=task.pos)


def cancel(s: State) -> State:
    if any(task.owned for task in s.tasks):
        return s._replace(job="cancelling")
    return terminate(s, "cancelled")


def close_out(s: State) -> State:
    log = s.logs[READER] or Log((0, 0))
    return s if log.trailer else with_log(s, READER, log._replace(closed=True, trailer=True))


# -- what a worker does next ------------------------------------------------------------------------------------------

Outcome = tuple[str, State, Worker, Worker]
"""Name, state after the command, the worker after its answer, the worker if the answer is lost."""


def let_go(w: Worker) -> Worker:
    return Worker("leaving", w.task, w.token)


def claims(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    if w.asked:
        index, token = w.asked
        task = s.tasks[index]
        held = task.owned and task.token == token
        yield "claim again", s, Worker("claimed", index, token, task.base) if held else Worker(), w
        return
    for index in (PRODUCER, READER):
        if s.job == "running" and s.tasks[index].state == "ready":
            after, token = claim(s, index, rules)
            claimed = Worker("claimed", index, token, after.tasks[index].base)
            yield f"claim {index}", after, claimed, Worker(asked=(index, token))


def begins(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    after, answer = fence(s, w.task, w.token, w.base, rules)
    log = after.logs[w.task]
    if answer != "ok" or log is None:
        yield f"fence: {answer}", after, let_go(w), w
    else:
        step = "sealed" if log.trailer else "open"
        yield "fence", after, Worker(step, w.task, w.token, end=log.end), w


def append(s: State, w: Worker, sent: tuple[int, ...], then: Worker, rules: Rules) -> Outcome:
    after, answer = emit(s, w.task, w.token, w.end, sent, rules)
    ok = then._replace(end=w.end + sent[1], sent=())
    return f"emit {sent}: {answer}", after, ok if answer == "ok" else let_go(w), then._replace(sent=sent)


def closes(s: State, w: Worker, rules: Rules) -> Outcome:
    after, answer = seal(s, w.task, w.token, rules)
    return f"seal: {answer}", after, w._replace(step="sealed") if answer == "ok" else let_go(w), w


def produces(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    if w.sent:
        yield append(s, w, w.sent, w, rules)
    elif w.end == rules.frames:
        yield closes(s, w, rules)
    else:
        for size in SIZES:
            if w.end + size <= rules.frames:
                yield append(s, w, (w.end, size), w, rules)


def reads(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    if w.sent:
        yield append(s, w, w.sent, w, rules)
        return
    source = s.logs[PRODUCER]
    chunk = next((entry for entry in source.entries if entry.end > w.position), None) if source is not None else None
    if source is None:
        yield "missing", s, w._replace(step="missing"), w
    elif chunk is not None:
        yield from takes(s, w, chunk, rules)
    elif source.trailer and source.end == w.position:
        yield closes(s, w, rules)
    elif rules.on("a silent reader asks") or source.trailer:
        yield "silence", s, w._replace(step="missing"), w


def takes(s: State, w: Worker, chunk: Entry, rules: Rules) -> Iterator[Outcome]:
    if chunk.start > w.position and rules.on("readers never skip"):
        yield "hole", s, w._replace(step="missing"), w
    elif chunk.start < w.position and not rules.cuttable:
        begin_anew = rules.on("a reader off the borders begins anew")
        yield "misaligned", s, let_go(w) if begin_anew else w._replace(step="missing"), w
    elif chunk.end <= w.end:
        yield "skip what is in out", s, w._replace(position=chunk.end), w
    else:
        content = max(w.end, chunk.start)
        yield append(s, w, (content, chunk.end - content), w._replace(position=chunk.end), rules)


def finishes(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    after, answer = commit(s, w.task, w.token, rules)
    if after.job == "succeeded":
        demand(w.end == rules.frames, "a job succeeded without all of its audio")
    yield f"commit: {answer}", after, Worker() if answer == "ok" else let_go(w), w


def calls(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    yield "reopen", reopen(s, w.position, rules), w._replace(step="open"), w


def leaves(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    yield "handback", handback(s, w.task, w.token, rules), Worker(), w


def works(s: State, w: Worker, rules: Rules) -> Iterator[Outcome]:
    yield from (produces if w.task == PRODUCER else reads)(s, w, rules)


NEXT: dict[str, Callable[[State, Worker, Rules], Iterator[Outcome]]] = {
    "idle": claims,
    "claimed": begins,
    "open": works,
    "missing": calls,
    "sealed": finishes,
    "leaving": leaves,
}


def renews(s: State, w: Worker, rules: Rules) -> tuple[State, Worker]:
    verdict = standing(s, w.task, w.token, rules)
    if verdict == "ok":
        return with_task(s, w.task, pos=w.end if rules.max_attempts else 0), w
    return s, let_go(w) if verdict in ("fenced", "closed") else w


# -- every next state -------------------------------------------------------------------------------------------------


def with_worker(s: State, at: int, w: Worker) -> State:
    """Workers are alike: their order means nothing."""
    other = s.workers[1 - at]
    return s._replace(workers=(w, other) if w <= other else (other, w))


def worker_steps(s: State, at: int, rules: Rules) -> Iterator[Step]:
    w = s.workers[at]
    for name, after, answered, unanswered in NEXT[w.step](s, w, rules):
        yield Step(name, with_worker(after, at, answered))
        if s.faults and (after != s or unanswered != w):
            lost = with_worker(after, at, unanswered)
            yield Step(f"{name}, answer lost", lost._replace(faults=s.faults - 1), fault=True)
    if w.step in ("open", "missing", "sealed"):
        after, renewed = renews(s, w, rules)
        yield Step("renew", with_worker(after, at, renewed))
    if s.faults and w != Worker():
        yield Step("crash", with_worker(s, at, Worker())._replace(faults=s.faults - 1), fault=True)


def steps(s: State, rules: Rules) -> Iterator[Step]:
    """Everything that may happen next."""
    for at in range(len(s.workers)):
        yield from worker_steps(s, at, rules)
    for index, task in enumerate(s.tasks):
        if task.owned:
            alive = any((index, task.token) in ((w.task, w.token), w.asked) for w in s.workers)
            if not alive:
                yield Step(f"reap {index}", reap(s, index, rules))
            elif s.faults:
                yield Step(f"lapse {index}", reap(s, index, rules)._replace(faults=s.faults - 1), fault=True)
        if s.faults and s.logs[index] is not None:
            yield Step(f"lose log {index}", with_log(s, index, None)._replace(faults=s.faults - 1), fault=True)
    if s.faults and s.job == "running":
        yield Step("cancel", cancel(s)._replace(faults=s.faults - 1), fault=True)
    if s.job == "cancelling":
        yield Step("close out", close_out(s))


# -- what must hold ---------------------------------------------------------------------------------------------------


def check(before: State, after: State, rules: Rules) -> None:
    """Raises Violation."""
    for old, log in zip(before.logs, after.logs, strict=True):
        if log is None:
            continue
        position, newest = log.first, (0, 0)
        for entry in log.entries:
            demand(entry.start == position, "chunks do not join on")
            demand(entry.content == entry.start, "audio was doubled or skipped")
            demand(entry.token >= newest, "chunks of two owners are interleaved")
            position, newest = entry.end, entry.token
        demand(position <= rules.frames, "audio was doubled")
        if old is not None and log.first >= old.first:
            demand(log.entries[: len(old.entries)] == old.entries, "what was appended has changed")


@dataclass
class Walk:
    """All states that were reached, and how."""

    parents: dict[State, tuple[State, str] | None] = field(default_factory=dict)
    sound: dict[State, list[State]] = field(default_factory=dict)
    """Who leads to a state without another fault."""
    violation: str = ""
    stuck: str = ""
    """The way into a state from which the job cannot end any more as it should."""

    def trace(self, state: State) -> list[str]:
        names: list[str] = []
        while (parent := self.parents[state]) is not None:
            state, name = parent
            names.append(name)
        return names[::-1]


def explore(faults: int, rules: Rules) -> Walk:
    """Breadth first through every interleaving; stops at the first violation."""
    first = State(faults=faults)
    walk = Walk({first: None})
    queue = [first]
    for state in queue:
        if state.job in TERMINAL or max(task.token[0] for task in state.tasks) > MANY_CLAIMS:
            continue
        try:
            for step in steps(state, rules):
                check(state, step.after, rules)
                if step.after not in walk.parents:
                    walk.parents[step.after] = (state, step.name)
                    queue.append(step.after)
                if not step.fault:
                    walk.sound.setdefault(step.after, []).append(state)
        except Violation as violation:
            walk.violation = f"{violation} after {walk.trace(state)}"
            return walk
    walk.stuck = _find_stuck(walk, rules)
    return walk


def _find_stuck(walk: Walk, rules: Rules) -> str:
    """A job that nobody cancelled can still succeed when attempts suffice; every other can still end."""
    can_succeed = _leading_to(walk, [s for s in walk.parents if s.job == "succeeded"])
    can_end = _leading_to(walk, [s for s in walk.parents if s.job in TERMINAL])
    for state in walk.parents:
        hopeful = state.job == "running" and not rules.max_attempts
        if state not in (can_succeed if hopeful else can_end):
            return f"a job in state {state.job} hangs after {walk.trace(state)}"
    return ""


def _leading_to(walk: Walk, goals: list[State]) -> set[State]:
    found, queue = set(goals), list(goals)
    for state in queue:
        for before in walk.sound.get(state, []):
            if before not in found:
                found.add(before)
                queue.append(before)
    return found
