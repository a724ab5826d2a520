"""On what terms a request is worked on: those of a call follow from its body, those of a job stand beside it."""

from dataclasses import dataclass, field

from speechmill.api.callers import Caller
from speechmill.api.speech.schemas import SpeechBody
from speechmill.configs.settings import JobClass, Settings
from speechmill.infra.keys import JOB_CLASSES

MAX_CALL_S = 3600.0
LATE_S = 3600
"""How long the record of a job outlives its result, so that who comes late is told that it is gone."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Times in seconds."""

    job_class: JobClass
    timeout_s: float
    """From submission to the deadline."""
    ttl_s: int
    """How long the result is kept after the end."""
    max_chars: int
    max_attempts: int
    detached: bool
    """Goes on although nobody listens."""
    metadata: dict[str, str] = field(default_factory=dict)
    custom_id: str | None = None
    group_id: str | None = None
    listed: bool = True
    """The project sees a job of its own."""
    accounted: bool = False
    """Its audio is counted in the key's quotas when it ends; that of a call while it is sent."""
    filename: str = ""
    webhook: str = ""
    """`{"url", "events"}` as JSON; "" for none."""

    @property
    def retention_s(self) -> int:
        """How long the job's record stays after its end."""
        return self.ttl_s + (LATE_S if self.detached else 0)

    @property
    def lasting_s(self) -> float:
        """How long what the job is made from must stay: it may be sent again after its end."""
        return 2 * self.timeout_s + self.retention_s


def capped(wanted: JobClass, caller: Caller) -> JobClass:
    """What is asked for, but no more than the key may ask for."""
    return max(wanted, caller.max_priority, key=JOB_CLASSES.index)


def call_terms(body: SpeechBody, caller: Caller, settings: Settings) -> Terms:
    """Of a call that waits for its audio (speech_api §1.1)."""
    limits, retention = settings.limits, settings.retention
    return Terms(
        job_class=capped(body.priority or "interactive", caller),
        timeout_s=min(float(body.timeout_seconds or limits.sync_timeout_s), MAX_CALL_S),
        ttl_s=retention.result_s if body.store else retention.sync_result_s,
        max_chars=limits.sync_input_chars,
        max_attempts=settings.worker.max_attempts,
        detached=bool(body.store),
        metadata=body.metadata or {},
    )
