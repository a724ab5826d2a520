"""What `/metrics` shows: counted here for this process, gauges read from Redis at the scrape. No text, voices or keys."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """One registry for each app, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        at = {"registry": self.registry}
        labels = ("route", "model", "format", "mode", "status")
        self.requests = Counter("speech_requests", "Requests answered", labels, **at)
        self.first_audio = Histogram(
            "speech_ttfa_seconds", "From accepted request to first PCM", ("model", "mode"), buckets=_SECONDS, **at
        )
        self.total = Histogram("speech_e2e_seconds", "Whole request", ("model", "mode"), buckets=_SECONDS, **at)
        self.audio = Counter("speech_audio_seconds", "Audio made", ("model",), **at)
        self.chars = Counter("speech_chars", "Characters accepted", ("model",), **at)
        self.active = Gauge("speech_active_streams", "Responses that wait for audio or send it", **at)
        self.cancelled = Counter("speech_cancelled", "Jobs ended early by this process", ("reason",), **at)
        self.gap = Histogram(
            "speech_stream_gap_seconds", "Longest wait of a real-time player", ("model",), buckets=_SECONDS, **at
        )
        self.queue_depth = Gauge("speech_queue_depth", "Tasks waiting for a worker", ("model", "stage"), **at)
        self.queued_jobs = Gauge("speech_queued_jobs", "Jobs that nobody has started", ("model",), **at)
        self.leased = Gauge("speech_tasks_leased", "Tasks that workers hold, one slot each", ("model", "stage"), **at)
        self.workers = Gauge("speech_worker_up", "Live workers", ("model", "stage"), **at)
