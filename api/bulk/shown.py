"""The object of a group of jobs (speech_api §5.4.1)."""

from typing import Any

from speechmill.infra.groups import GroupRecord

PATH = "/v1/audio/job_groups"


def path_of(group: GroupRecord) -> str:
    return f"{PATH}/{group.id}"


def show_group(group: GroupRecord) -> dict[str, Any]:
    """`status` is in_progress, completed, cancelling or cancelled; `rejected` names the first 100."""
    here = path_of(group)
    return {
        "id": group.id,
        "object": "audio.job_group",
        "status": group.state,
        "created_at": group.created // 1000,
        "finished_at": group.times[group.state] // 1000 if group.is_over else None,
        "counts": group.counts,
        "rejected": group.details["rejected"],
        "links": {
            "self": here,
            "jobs": f"/v1/audio/jobs?group_id={group.id}",
            "results": f"{here}/results",
            "archive": f"{here}/archive",
            "cancel": f"{here}/cancel",
            "retry": f"{here}/retry",
        },
    }
