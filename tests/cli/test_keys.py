"""Keys as an operator handles them, on a real server."""

import json
import re
from pathlib import Path

from running import speechmill

from speechmill.infra.embedded import EmbeddedValkey


def test_a_key_is_made_listed_and_revoked(valkey: EmbeddedValkey, prefix: str, tmp_path: Path) -> None:
    where = {"SPEECHMILL_REDIS__CONTROL_URL": valkey.url, "SPEECHMILL_REDIS__PREFIX": prefix}
    made = speechmill(
        *("keys", "create", "--name", "site", "--project", "shop", "--scope", "speech"),
        *("--limit", "requests_per_minute=60"),
        cwd=tmp_path,
        **where,
    )
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"sk-[\w-]{40,}\n", made.stdout)
    listed = speechmill("keys", "list", "--json", cwd=tmp_path, **where)
    (record,) = map(json.loads, listed.stdout.splitlines())
    assert (record["project"], record["scopes"], record["limits"]["requests_per_minute"]) == ("shop", ["speech"], 60)
    assert record["hint"] == made.stdout.strip()[-4:]
    assert made.stdout.strip() not in listed.stdout
    revoked = speechmill("keys", "revoke", record["id"], "--json", cwd=tmp_path, **where)
    assert json.loads(revoked.stdout) == {"id": record["id"], "revoked": True}
    again = speechmill("keys", "revoke", record["id"], cwd=tmp_path, **where)
    assert (again.returncode, "there is no key" in again.stderr) == (1, True)
    assert "no keys" in speechmill("keys", "list", cwd=tmp_path, **where).stderr


def test_a_wrong_option_is_one_line(valkey: EmbeddedValkey, tmp_path: Path) -> None:
    for option in (("--scope", "everything"), ("--limit", "speed=3"), ("--project", "../x")):
        done = speechmill("keys", "create", *option, cwd=tmp_path, SPEECHMILL_REDIS__CONTROL_URL=valkey.url)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("speechmill: ")
