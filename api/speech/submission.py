"""An order becomes a job in the queue, whether somebody waits for it or not."""

from speechmill.api.callers import Caller
from speechmill.api.farm import FarmState
from speechmill.api.speech.orders import Order
from speechmill.infra.errors import Overloaded
from speechmill.infra.messages import JobDetails, Submission
from speechmill.infra.protocol import Limits, Submitted, submit
from speechmill.infra.quota import account_of


class Refused(Overloaded):
    """The job was not taken: nothing of it is left behind."""


async def submit_order(farm: FarmState, caller: Caller, wanted: Order, job: str) -> Submitted:
    """Answers `ok`, or `exists` with the job that the same idempotency key stands for already.

    The job is not on the disk before `AsyncClient.wait_durable`. Raises Refused.
    """
    most = caller.limits.queued_jobs or farm.settings.limits.project_jobs
    limits = Limits(farm.settings.limits.queue_depth, most)
    answer = await farm.client.run(submit(submission_of(caller, wanted, job), limits))
    if answer.answer == "full":
        state = await farm.state(wanted.card)
        wait_s = max(state.oldest_ms[wanted.terms.job_class] / 1000, 1.0)
        raise Refused(f"{answer.depth} requests wait already", retry_after_s=wait_s)
    if answer.answer == "quota":
        raise Refused(f"{answer.depth} jobs of this project are in work already", retry_after_s=5.0)
    farm.metrics.chars.labels(wanted.card.id).inc(wanted.chars)
    return answer


def details_of(wanted: Order) -> JobDetails:
    """What the client may ask about its job."""
    return JobDetails(
        voice=wanted.voice,
        filename=wanted.terms.filename,
        ttl_s=wanted.terms.ttl_s,
        text_tokens=wanted.chars,
        audio_tokens=wanted.reference_frames,
        frame_rate=wanted.card.stages[0].rate,
    )


def submission_of(caller: Caller, wanted: Order, job: str) -> Submission:
    """The job that an order is to become."""
    card, terms = wanted.card, wanted.terms
    return Submission(
        job=job,
        model=card.id,
        stages=tuple(stage.name for stage in card.stages),
        segments=wanted.segments,
        request=wanted.request,
        project=caller.project,
        listed=terms.listed,
        job_class=terms.job_class,
        live=wanted.mode != "buffered",
        timeout_s=terms.timeout_s,
        retention_s=terms.retention_s,
        max_attempts=terms.max_attempts,
        ahead=card.segments.ahead,
        order=card.segments.order,
        idempotency_key=wanted.once,
        details=details_of(wanted),
        custom_id=terms.custom_id,
        group_id=terms.group_id,
        metadata=terms.metadata,
        webhook=terms.webhook,
        asked=wanted.asked,
        account=account_of(caller.key, caller.limits) if terms.accounted else (),
    )
