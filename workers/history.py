"""What a model hears of the segments before its own, where the card says that segments are chained."""

import contextlib

from speechmill.infra.client import Client
from speechmill.infra.jobs import log_of
from speechmill.infra.keys import ENCODE, LogRef, Task
from speechmill.infra.messages import Claim
from speechmill.infra.protocol import Hole, LogReader
from speechmill.models.registry import cards

READ_COUNT = 64
Spoken = tuple[str, bytes]
"""Text of a segment, and what its first stage logged."""


def read_history(client: Client, claim: Claim) -> tuple[Spoken, ...]:
    """The oldest first; () for every task but those of a first stage.

    They are the same whenever they are read: a segment is begun once the first stage is done with the one before. Those
    of a job that was deleted meanwhile are missing, and nobody will hear what comes of it.
    """
    task, most = claim.task, cards()[claim.model].segments.history
    if task.segment is None or not most or task.stage != claim.stages[0] or task.stage == ENCODE:
        return ()
    heard = range(max(task.segment - most, 0), task.segment)
    texts = client.read_fields(client.keys.segments(task.job), [str(segment) for segment in heard])
    logs = [log_of(Task(task.job, task.take, segment, task.stage), claim.stages) for segment in heard]
    with contextlib.suppress(Hole):
        return tuple((text.decode(), read_whole(client, log)) for text, log in zip(texts, logs, strict=True) if text)
    return ()


def read_whole(client: Client, log: LogRef) -> bytes:
    """The payloads of a log that is not trimmed, as far as it is written. Raises Hole for one that was."""
    reader, parts = LogReader(), []
    while entries := client.read_log(log, reader.entry, READ_COUNT):
        parts += [chunk.payload for chunk in reader.entries(entries)]
    return b"".join(parts)
