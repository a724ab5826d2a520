"""OpenAI's batch object (speech_api §5.3)."""

from typing import Any

from speechmill.api.batches.schemas import ENDPOINT
from speechmill.infra.groups import GroupRecord

_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def show_batch(batch: GroupRecord) -> dict[str, Any]:
    """Lines that were cancelled or not run in time count as failed."""
    counts, told = batch.counts, batch.details
    failed = counts["rejected"] + counts["failed"] + counts["expired"] + counts["cancelled"]
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": ENDPOINT,
        "errors": {"object": "list", "data": told["errors"]} if "errors" in told else None,
        "input_file_id": told["input_file_id"],
        "completion_window": "24h",
        "status": batch.state,
        "output_file_id": told.get("output_file_id"),
        "error_file_id": told.get("error_file_id"),
        "created_at": batch.created // 1000,
        "expires_at": int(batch.deadline),
        **{f"{name}_at": batch.times[name] // 1000 if name in batch.times else None for name in _TIMES},
        "request_counts": {"total": counts["total"], "completed": counts["succeeded"], "failed": failed},
        "metadata": batch.metadata or None,
    }
