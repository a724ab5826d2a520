"""Checks of a farm over HTTP, if there is one."""

from collections.abc import Iterator
from importlib.metadata import version

from speechmill.cli.doctor.finding import Finding, fail, ok, warn
from speechmill.cli.remote import Refused, Remote, Unreachable


def check_farm(farm: Remote) -> Iterator[Finding]:
    """Nothing about key, version and readiness where none answers."""
    try:
        farm.ask("GET", "/health")
    except Unreachable:
        yield warn("farm", f"nothing answers at {farm.base}", "start one with `speechmill up`, or give --url")
        return
    except Refused as error:
        yield fail("farm", str(error), "something else listens there: give --url, or free the port")
        return
    yield ok("farm", f"{farm.base} answers")
    yield _ready(farm)
    yield _same_version(farm)
    yield _key(farm)


def _ready(farm: Remote) -> Finding:
    try:
        farm.ask("GET", "/health/ready")
    except (Refused, Unreachable) as error:
        return fail("ready", str(error), "see /health/ready, and data/logs on its machine")
    return ok("ready", "Redis, S3 and a worker for every stage of a model")


def _same_version(farm: Remote) -> Finding:
    try:
        theirs = str(farm.told("GET", "/version")["version"])
    except (Refused, Unreachable, KeyError) as error:
        return warn("version", f"it does not tell: {error}", "is it a Speechmill?")
    ours = version("speechmill")
    if theirs != ours:
        return warn("version", f"the farm is {theirs}, this command {ours}", "take the same version for both")
    return ok("version", theirs)


def _key(farm: Remote) -> Finding:
    try:
        farm.ask("GET", "/v1/audio/jobs", params={"limit": 1})
    except Refused as error:
        advice = "give --key or SPEECHMILL_API_KEY; `speechmill keys create` makes one"
        return fail("key", str(error), advice)
    except Unreachable as error:
        return warn("key", str(error), "try again")
    return ok("key", "accepted" if "Authorization" in farm.http.headers else "none is asked for")
