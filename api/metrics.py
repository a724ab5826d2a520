"""What `/metrics` shows: counters of this process, gauges read from Redis at the scrape. No text, voices or keys."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily

_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class SharedCounter:
    """Counted in Redis by processes that nobody scrapes; every API shows the same sums."""

    def __init__(self, name: str, documentation: str, label: str) -> None:
        self._described = (name, documentation)
        self._label = label
        self.values: dict[str, int] = {}
        """By label; set at the scrape."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._described, labels=(self._label,))
        for value, count in self.values.items():
            family.add_metric((value,), count)
        yield family


class Metrics:
    """One registry for each app, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = into = CollectorRegistry()
        labels = ("route", "model", "format", "mode", "status")
        self.requests = Counter("speech_requests", "Requests answered", labels, registry=into)
        self.first_audio = Histogram(
            "speech_ttfa_seconds",
            "From accepted request to first PCM",
            ("model", "mode"),
            buckets=_SECONDS,
            registry=into,
        )
        self.total = Histogram(
            "speech_e2e_seconds", "Whole request", ("model", "mode"), buckets=_SECONDS, registry=into
        )
        self.audio = Counter("speech_audio_seconds", "Audio made", ("model",), registry=into)
        self.chars = Counter("speech_chars", "Characters accepted", ("model",), registry=into)
        self.active = Gauge("speech_active_streams", "Responses that wait for audio or send it", registry=into)
        self.cancelled = Counter("speech_cancelled", "Jobs ended early by this process", ("reason",), registry=into)
        self.gap = Histogram(
            "speech_stream_gap_seconds",
            "Longest wait of a real-time player",
            ("model",),
            buckets=_SECONDS,
            registry=into,
        )
        self.queue_wait = Histogram(
            "speech_queue_wait_seconds",
            "From submission to the first worker",
            ("model", "stage"),
            buckets=_SECONDS,
            registry=into,
        )
        self.rtf = Histogram(
            "speech_rtf", "Wall time of a call for each second of its audio", ("model",), buckets=_RATIOS, registry=into
        )
        self.queue_depth = Gauge(
            "speech_queue_depth", "Tasks waiting for a worker", ("model", "stage", "priority"), registry=into
        )
        self.queued_jobs = Gauge("speech_queued_jobs", "Jobs that nobody has started", ("model",), registry=into)
        self.leased = Gauge(
            "speech_tasks_leased", "Tasks that workers hold, one slot each", ("model", "stage"), registry=into
        )
        self.deliveries = SharedCounter("speech_webhook_deliveries", "Tries of webhook deliveries", "outcome")
        into.register(self.deliveries)
        self.workers = Gauge(
            "speech_worker_up", "1 for each live worker", ("model", "stage", "worker"), registry=into
        )
