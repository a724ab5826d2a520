"""Ids that a command takes: of a job, or of a group of jobs."""

from typing import Annotated
from urllib.parse import quote

import typer

Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Jobs (job_…) and groups of jobs (jobgrp_…).")]
JOBS = "/v1/audio/jobs"
GROUPS = "/v1/audio/job_groups"
_GROUP = "jobgrp_"


def is_group(name: str) -> bool:
    return name.startswith(_GROUP)


def path_of(name: str) -> str:
    return f"{GROUPS if is_group(name) else JOBS}/{quote(name, safe='')}"
