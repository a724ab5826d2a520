"""Celery, for what is not on the audio path. Its broker is never a Redis Cluster; messages carry ids only, as JSON."""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from celery import Celery
from celery.exceptions import OperationalError

from speechmill.configs.settings import Settings, load
from speechmill.infra.client import UNAVAILABLE, Client
from speechmill.infra.connect import check_redis, make_client, make_objects
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.expiry import sweep_objects
from speechmill.infra.groups import due_groups
from speechmill.infra.jobs import settle
from speechmill.infra.objects import ObjectStore
from speechmill.infra.posting import Poster
from speechmill.infra.protocol import reap
from speechmill.workers.webhooks import Courier, fan_out

log = logging.getLogger(__name__)
SWEEP = "retention.sweep"
REAP = "jobs.reap"
DISPATCH = "webhooks.dispatch"
DELIVER = "webhooks.deliver"
MIND = "bulk.mind"
TEND = "bulk.tend"
QUEUES = ("sweep", "webhook", "bulk")
"""What waits for other people's servers, or goes on for long, has a queue of its own."""
MOST_GROUPS = 100
GROUP_LEASE_S = 15.0
"""How long a group waits for one that does not come back."""


def broker_url(settings: Settings) -> str:
    """Celery writes a unix socket's URL in its own way."""
    url = settings.celery.broker_url or settings.redis.control_url
    return url.replace("unix://", "redis+socket://", 1) if url.startswith("unix://") else url


def options(settings: Settings) -> dict[str, Any]:
    """Tasks are short and may run twice; one that is lost comes back within seconds (infrastructure §4)."""
    return {
        "broker_url": broker_url(settings),
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": 300,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "socket_timeout": 30,
            "health_check_interval": 15,
            "global_keyprefix": f"{settings.redis.prefix}:celery:",
        },
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_ignore_result": True,
        "task_time_limit": 120,
        "task_soft_time_limit": 100,
        "task_default_queue": "sweep",
        "task_routes": {DELIVER: {"queue": "webhook"}, TEND: {"queue": "bulk"}},
        "task_serializer": "json",
        "accept_content": ["json"],
        "worker_prefetch_multiplier": 1,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "worker_hijack_root_logger": False,
        "beat_schedule": {
            "sweep": {"task": SWEEP, "schedule": float(settings.celery.sweep_every_s), "options": {"expires": 60}},
            "reap": {"task": REAP, "schedule": 15.0, "options": {"expires": 15}},
            "dispatch": {"task": DISPATCH, "schedule": 1.0, "options": {"expires": 2}},
            "mind": {"task": MIND, "schedule": 1.0, "options": {"expires": 2}},
        },
    }


_given: list[Settings] = []


@cache
def _settings() -> Settings:
    return _given[-1] if _given else load()


@cache
def _client() -> Client:
    return make_client(_settings())


@cache
def _objects() -> ObjectStore:
    return make_objects(_settings())


@cache
def _courier() -> Courier:
    return Courier(_settings(), _client(), _objects())


app = Celery("speechmill")


@app.task(name=SWEEP)  # type: ignore[untyped-decorator]  # Celery brings no types
def sweep() -> None:
    """Delete stored objects whose time has come."""
    try:
        gone = sweep_objects(_client(), _objects())
    except (StoreUnavailable, *UNAVAILABLE) as error:
        log.warning("not swept", extra={"error": str(error)})
        return
    if gone:
        log.info("swept", extra={"objects": gone})


@app.task(name=REAP)  # type: ignore[untyped-decorator]
def reap_jobs() -> None:
    """End jobs that are past their deadline also while no worker is there to notice."""
    client = _client()
    try:
        for job in client.run(reap()):
            settle(client, job, _settings().retention.logs_s)
    except UNAVAILABLE as error:
        log.warning("not reaped", extra={"error": str(error)})


@app.task(name=DISPATCH)  # type: ignore[untyped-decorator]
def dispatch() -> None:
    """Take events from the outbox, and have what is due delivered."""
    courier = _courier()
    try:
        fan_out(_client())
        for target in courier.targets():
            deliver.apply_async((target,), expires=courier.lease_s)
    except (OperationalError, *UNAVAILABLE) as error:
        log.warning("not dispatched", extra={"error": str(error)})


@app.task(name=DELIVER)  # type: ignore[untyped-decorator]
def deliver(target: str) -> None:
    """Tell one target what it is to be told. What is not done comes back when the target's lease is over."""
    try:
        _courier().serve(target)
    except UNAVAILABLE as error:
        log.warning("not delivered", extra={"error": str(error)})


@app.task(name=MIND)  # type: ignore[untyped-decorator]
def mind() -> None:
    """Have groups of jobs seen to whose time has come."""
    try:
        for group in _client().run(due_groups(MOST_GROUPS, GROUP_LEASE_S)):
            app.send_task(TEND, (group,), expires=GROUP_LEASE_S)
    except (OperationalError, *UNAVAILABLE) as error:
        log.warning("not minded", extra={"error": str(error)})


def run_worker(settings: Settings, tend: Callable[[str], None], queues: Sequence[str] = QUEUES) -> None:
    """Body of `speechmill celery worker`. `tend` sees to one group of jobs.

    Raises ConfigError for settings that no task could work with.
    """
    check_redis(settings)
    Poster(settings)
    _given.append(settings)

    @app.task(name=TEND)  # type: ignore[untyped-decorator]
    def tend_group(group: str) -> None:
        tend(group)

    app.conf.update(options(settings))
    warnings.filterwarnings("ignore", message="You're running the worker with superuser")  # JSON only: harmless
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
    named = ("-Q", ",".join(queues))
    app.start(["-q", "worker", "-P", "threads", "-c", str(settings.celery.threads), *named, *quiet])


def run_beat(settings: Settings) -> None:
    """Body of `speechmill celery beat`. The schedule's file lies in the data folder."""
    check_redis(settings)
    app.conf.update(options(settings))
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    app.start(["-q", "beat", "-s", str(settings.data_dir / "beat"), "--pidfile", "", "-l", "WARNING"])
