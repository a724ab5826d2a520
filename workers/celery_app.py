"""Celery, for what is not on the audio path. Its broker is never a Redis Cluster; messages carry ids only, as JSON."""

import logging
import warnings
from functools import cache
from typing import Any

from celery import Celery

from speechmill.configs.settings import Settings, load
from speechmill.infra.client import UNAVAILABLE, Client
from speechmill.infra.connect import check_redis, make_client, make_objects
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.expiry import sweep_objects
from speechmill.infra.jobs import settle
from speechmill.infra.objects import ObjectStore
from speechmill.infra.protocol import reap

log = logging.getLogger(__name__)
SWEEP = "retention.sweep"
REAP = "jobs.reap"


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


def run_worker(settings: Settings) -> None:
    """Body of `speechmill celery worker`."""
    check_redis(settings)
    _given.append(settings)
    app.conf.update(options(settings))
    warnings.filterwarnings("ignore", message="You're running the worker with superuser")  # JSON only: harmless
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
    app.start(["-q", "worker", "-P", "threads", "-c", str(settings.celery.threads), *quiet])


def run_beat(settings: Settings) -> None:
    """Body of `speechmill celery beat`. The schedule's file lies in the data folder."""
    check_redis(settings)
    app.conf.update(options(settings))
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    app.start(["-q", "beat", "-s", str(settings.data_dir / "beat"), "--pidfile", "", "-l", "WARNING"])
