"""`speechmill submit` and its neighbours on a farm of real processes: nothing is lost and nothing is made twice."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from e2e.harness import Farm, eventually
from running import COMMAND, environment, speechmill
from typer.testing import CliRunner, Result

from speechmill.cli.main import app
from speechmill.cli.remote import Remote
from speechmill.cli.submit.call import Call
from speechmill.cli.submit.fetching import Broken, Fetcher
from speechmill.cli.submit.outputs import Folder
from speechmill.cli.submit.patience import Patience
from speechmill.cli.submit.planning import Wishes, planned
from speechmill.cli.submit.progress import Display
from speechmill.cli.submit.sending import Sender
from speechmill.cli.submit.sources.gather import Reading, gather
from speechmill.cli.submit.state import State
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.errors import StoreUnavailable
from speechmill.infra.keys import new_id

WITHIN_S = 120.0
WINDOW = 16
"""Jobs of a group at a time: so small that there is time to interrupt what follows."""


@pytest.fixture(scope="module")
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("farm"))
    farm.settings |= {"SPEECHMILL_LIMITS__BULK_WINDOW": str(WINDOW), "SPEECHMILL_DATA_DIR": str(farm.logs)}
    farm.start_api()
    farm.start_worker()
    farm.start("celery", "celery", "worker")
    farm.start("beat", "celery", "beat")
    farm.await_ready()
    yield farm
    farm.stop()


def variables(farm: Farm) -> dict[str, str]:
    return {"SPEECHMILL_URL": farm.base}


def run(farm: Farm, cwd: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return speechmill(*arguments, cwd=cwd, **variables(farm), **more)


def ask(farm: Farm, *arguments: str) -> Result:
    """In this process, which is quicker."""
    return CliRunner().invoke(app, arguments, env=variables(farm))


def begin(farm: Farm, cwd: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**variables(farm)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_lines(path: Path, count: int) -> Path:
    path.write_text("".join(f"Number {number}.\n" for number in range(count)))
    return path


def manifest(out: Path) -> list[dict[str, Any]]:
    """Every line of it must be whole."""
    path = out / "manifest.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def jobs_made(farm: Farm) -> int:
    return int(farm.client.server("control").zcard(f"{farm.client.keys.root}:jobs:default"))


def await_lines(out: Path, count: int) -> None:
    eventually(lambda: len(manifest(out)) >= count, WITHIN_S, f"{count} items are done")


def assert_whole(out: Path, names: Sequence[str]) -> None:
    """Each item once, with a file that is what the manifest says."""
    lines = manifest(out)
    assert [line["custom_id"] for line in lines] == list(names)
    for line in lines:
        assert line["status"] == "succeeded"
        audio = (out / line["file"]).read_bytes()
        assert len(audio) == line["bytes"]
        assert int.from_bytes(audio[40:44], "little") == len(audio) - 44


def names_of(stem: str, count: int) -> list[str]:
    return [f"{stem}-{number:05d}" for number in range(1, count + 1)]


def test_a_call_that_is_killed_goes_on_where_it_stopped_and_no_job_is_made_twice(farm: Farm, tmp_path: Path) -> None:
    count, before = 60, jobs_made(farm)
    write_lines(tmp_path / "a.txt", count)
    killed = begin(farm, tmp_path, "submit", "a.txt", "--out", "out")
    await_lines(tmp_path / "out", 5)
    killed.kill()
    killed.communicate()
    assert len(manifest(tmp_path / "out")) < count
    again = run(farm, tmp_path, "submit", "a.txt", "--out", "out", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["succeeded"] == count
    assert_whole(tmp_path / "out", names_of("a", count))
    assert jobs_made(farm) - before == count
    assert sorted(path.name for path in (tmp_path / "out" / ".speechmill" / "parts").iterdir()) == []


def test_ctrl_c_leaves_the_farm_at_work_and_names_the_command_that_comes_back(farm: Farm, tmp_path: Path) -> None:
    count, before = 30, jobs_made(farm)
    write_lines(tmp_path / "a.txt", count)
    left = begin(farm, tmp_path, "submit", "a.txt", "--out", "my out")
    await_lines(tmp_path / "my out", 3)
    left.send_signal(signal.SIGINT)
    _, said = left.communicate(timeout=WITHIN_S)
    assert left.returncode == 130
    assert f"of {count} done; the farm goes on with the rest" in said
    eventually(lambda: jobs_made(farm) - before == count, WITHIN_S, "the farm goes on")
    program, *arguments = shlex.split(said.splitlines()[-1])
    assert program == "speechmill"
    again = run(farm, tmp_path, *arguments)
    assert again.returncode == 0, again.stderr
    assert_whole(tmp_path / "my out", names_of("a", count))
    assert jobs_made(farm) - before == count


class Away(Folder):
    """The user leaves with the first result, and then the manifest finds no place."""

    def keep(self, name: str, part: Path, sha256: str, media_type: str) -> int:
        if name == "a-00001.wav":
            os.kill(os.getpid(), signal.SIGINT)
        return super().keep(name, part, sha256, media_type)

    def publish(self) -> None:
        raise StoreUnavailable("the bucket is away")


def test_ctrl_c_is_told_although_the_manifest_finds_no_place(
    farm: Farm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, wishes = write_lines(tmp_path / "a.txt", 40), Wishes({}, {}, "{custom_id}.{ext}")
    with Remote(farm.base, "") as remote, Display(as_json=True) as display:
        call = Call(remote, display, Away(tmp_path / "out"), (str(source),), Reading(), wishes, overwrite=False)
        assert call.carry_out(retry_failed=False, no_wait=False) == 130
    said = capsys.readouterr().err
    assert "the bucket is away" in said
    assert "To come back" in said


def test_a_line_of_results_that_nobody_understands_ends_the_fetching(tmp_path: Path) -> None:
    with Remote("127.0.0.1:9", "") as remote, Fetcher(remote, Folder(tmp_path), Patience(print)) as fetcher:
        fetcher.fetch("a.wav", "/audio", {"response": {"body": {"bytes": "many"}}})
        (outcome,) = fetcher.take(WITHIN_S)
    assert isinstance(outcome, Broken)
    assert isinstance(outcome.error, ValueError)


def test_a_call_outlives_the_api(farm: Farm, tmp_path: Path) -> None:
    count = 24
    write_lines(tmp_path / "a.txt", count)
    waiting = begin(farm, tmp_path, "submit", "a.txt", "--out", "out")
    await_lines(tmp_path / "out", 3)
    farm.kill("api")
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith("waiting for the farm: ")
    farm.start("api", "api", "--port", farm.base.rpartition(":")[2])
    said, complained = waiting.communicate(timeout=WITHIN_S)
    assert waiting.returncode == 0, complained
    assert "the farm answers again" in complained
    assert f"{count} of {count} done" in said
    assert_whole(tmp_path / "out", names_of("a", count))


def test_what_is_there_stays_and_what_has_changed_is_spoken_anew(farm: Farm, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "a.csv").write_text("custom_id,text,seed\na,One.,1\nb,Two.,1\nc,Three.,1\nd,Four.,1\n")
    assert run(farm, tmp_path, "submit", "a.csv", "--out", "out").returncode == 0
    before, first = jobs_made(farm), {line["custom_id"]: line for line in manifest(out)}
    (out / "a.wav").unlink()
    (out / "b.wav").write_bytes(b"x" * first["b"]["bytes"])
    kept = (out / "c.wav").stat()
    (tmp_path / "a.csv").write_text("custom_id,text,seed\na,One.,1\nb,Two.,1\nc,Three.,1\nd,Five.,1\n")
    again = run(farm, tmp_path, "submit", "a.csv", "--out", "out", "--json")
    assert again.returncode == 0, again.stderr
    assert sorted(json.loads(line)["custom_id"] for line in again.stdout.splitlines()[:-1]) == ["a", "b", "d"]
    second = {line["custom_id"]: line for line in manifest(out)}
    assert [second[name]["sha256"] == first[name]["sha256"] for name in "abcd"] == [True, True, True, False]
    assert_whole(out, ["a", "b", "c", "d"])
    assert ((out / "c.wav").stat().st_ino, (out / "c.wav").stat().st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
    assert jobs_made(farm) - before == 1


def test_what_fails_is_told_with_its_reason_and_retried_on_demand(farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("custom_id,text,voice\ngood,One.,\nbad,Two.,nobody\n")
    failed = run(farm, tmp_path, "submit", "a.csv", "--out", "out")
    assert failed.returncode == 2
    assert "a.csv:3: bad rejected: there is no such voice for hibari" in failed.stderr
    assert "1 of 2 done, 1 failed" in failed.stdout
    lines = {line["custom_id"]: (line["status"], line["file"]) for line in manifest(tmp_path / "out")}
    assert lines == {"good": ("succeeded", "good.wav"), "bad": ("rejected", None)}
    (tmp_path / "a.csv").write_text("custom_id,text,voice\ngood,One.,\nbad,Two.,heart\n")
    again = run(farm, tmp_path, "submit", "a.csv", "--out", "out")
    assert again.returncode == 0, again.stderr
    assert_whole(tmp_path / "out", ["good", "bad"])


def test_a_cancelled_group_ends_as_such_and_is_spoken_by_a_retry(farm: Farm, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.txt", 40)
    sent = run(farm, tmp_path, "submit", "a.txt", "--out", "out", "--no-wait", "--json")
    summary = json.loads(sent.stdout)
    assert (sent.returncode, summary["pending"]) == (0, 40)
    (group,) = summary["groups"]
    assert run(farm, tmp_path, "jobs", "cancel", group).returncode == 0
    cancelled = run(farm, tmp_path, "submit", "a.txt", "--out", "out", "--json")
    counts = json.loads(cancelled.stdout.splitlines()[-1])
    assert (cancelled.returncode, "pending" in counts) == (2, False)
    assert counts["cancelled"] == len([line for line in manifest(tmp_path / "out") if line["status"] == "cancelled"])
    assert counts["cancelled"] > 0
    assert ask(farm, "jobs", "retry", group).exit_code == 1
    assert ask(farm, "jobs", "retry", group, "--state", "cancelled", "--state", "failed").exit_code == 0
    assert ask(farm, "jobs", "watch", group).exit_code == 0
    again = run(farm, tmp_path, "submit", "--out", "out", "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert_whole(tmp_path / "out", names_of("a", 40))


def test_a_watch_outlives_the_api(farm: Farm, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", 40)
    sent = ask(farm, "submit", str(source), "--out", str(tmp_path / "x"), "--no-wait", "--json")
    (group,) = json.loads(sent.stdout)["groups"]
    watching = begin(farm, tmp_path, "jobs", "watch", group)
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith(group)
    farm.kill("api")
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith("waiting for the farm: ")
    farm.start("api", "api", "--port", farm.base.rpartition(":")[2])
    said, complained = watching.communicate(timeout=WITHIN_S)
    assert watching.returncode == 0, complained
    assert "completed" in said


class Crash(Exception):
    """What a power cut would be."""


class Crashing(State):
    """Dies between the farm's answer and writing it down."""

    def accepted(self, window: int, group: str) -> None:
        raise Crash


def test_a_window_whose_answer_was_lost_is_one_group(farm: Farm, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", 5)
    before = jobs_made(farm)
    with Remote(farm.base, "") as remote:
        with Crashing(tmp_path / "state") as state:
            state.plan(planned(gather([str(source)], Reading()), Wishes({}, {}, "{custom_id}.{ext}")))
            with pytest.raises(Crash):
                Sender(remote, state, Patience(print)).next()
        assert jobs_made(farm) - before == 5
        with State(tmp_path / "state") as state:
            assert state.unsent() == 5
            sender = Sender(remote, state, Patience(print))
            assert sender.settle() == []
            assert (state.unsent(), sender.next()) == (0, None)
            (group,) = state.groups()
        assert remote.told("GET", f"/v1/audio/job_groups/{group}")["counts"]["total"] == 5
    assert jobs_made(farm) - before == 5


def test_what_the_farm_has_no_more_is_spoken_again(farm: Farm, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.txt", 3)
    assert run(farm, tmp_path, "submit", "a.txt", "--out", "out").returncode == 0
    jobs = [line["job_id"] for line in manifest(tmp_path / "out")]
    assert ask(farm, "jobs", "rm", jobs[0]).exit_code == 0
    for number in (1, 2):
        (tmp_path / "out" / f"a-0000{number}.wav").unlink()
    without = run(farm, tmp_path, "submit", "--out", "out")
    assert (without.returncode, "the job was deleted" in without.stderr) == (2, True)
    again = run(farm, tmp_path, "submit", "a.txt", "--out", "out", "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert_whole(tmp_path / "out", names_of("a", 3))
    fresh = [line["job_id"] for line in manifest(tmp_path / "out")]
    assert [old == new for old, new in zip(jobs, fresh, strict=True)] == [False, True, True]


def test_results_may_go_to_a_bucket(farm: Farm, s3: EmbeddedS3, bucket: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.txt", 4)
    own = {
        "SPEECHMILL_OUT_S3_ENDPOINT": s3.endpoint_url,
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    command = ("submit", "a.txt", "--out", f"s3://{bucket}/deep/er", "--format", "mp3")
    done = run(farm, tmp_path, *command, **own)
    assert done.returncode == 0, done.stderr
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint_url,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        region_name="us-east-1",
    )
    lines = client.get_object(Bucket=bucket, Key="deep/er/manifest.jsonl")["Body"].read().splitlines()
    for line in map(json.loads, lines):
        stored = client.get_object(Bucket=bucket, Key=f"deep/er/{line['file']}")
        assert (stored["ContentLength"], stored["ContentType"]) == (line["bytes"], "audio/mpeg")
        assert stored["Metadata"]["sha256"] == line["sha256"]
    assert len(lines) == 4
    client.delete_object(Bucket=bucket, Key="deep/er/a-00002.mp3")
    before = jobs_made(farm)
    again = run(farm, tmp_path, *command, "--json", **own)
    assert [json.loads(line).get("custom_id") for line in again.stdout.splitlines()] == ["a-00002", None]
    assert jobs_made(farm) == before
    client.close()


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("custom_id,text\na/b,x\na_b,y\n", (), "would both be written to a_b.wav"),
        ("custom_id,text\na,x\na,y\n", ("--name-template", "{index}.{ext}"), "have the same custom_id, 'a'"),
        ("custom_id,text\nthere,x\n", (), "there.wav is there already, and from elsewhere"),
        ("text,nonsense\nx,y\n", (), "a.csv:2: 'nonsense' is no field of the API"),
        ("text\n", (), "there is no text in it"),
    ],
)
def test_nothing_is_sent_where_a_source_is_wrong(
    farm: Farm, tmp_path: Path, content: str, options: tuple[str, ...], said: str
) -> None:
    before = jobs_made(farm)
    (tmp_path / "a.csv").write_text(content)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "there.wav").write_bytes(b"mine")
    refused = run(farm, tmp_path, "submit", "a.csv", "--out", "out", *options)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert said in refused.stderr
    assert jobs_made(farm) == before
    assert (tmp_path / "out" / "there.wav").read_bytes() == b"mine"


def test_two_calls_do_not_work_on_one_output(farm: Farm, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.txt", 1)
    with State(tmp_path / "out" / ".speechmill" / "state.sqlite3"):
        refused = run(farm, tmp_path, "submit", "a.txt", "--out", "out")
    assert (refused.returncode, "another command is at work" in refused.stderr) == (1, True)


def test_a_dry_run_counts_and_sends_nothing(farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Twelve chars\nTen chars.\n")
    before = jobs_made(farm)
    told = json.loads(run(farm, tmp_path, "submit", "a.txt", "--out", "out", "--dry-run", "--json").stdout)
    assert (told["items"], told["characters"], told["audio_s"]) == (2, 22, 1.5)
    assert jobs_made(farm) == before
    assert not (tmp_path / "out").exists()
    assert run(farm, tmp_path, "submit", "a.txt", "--out", "out").returncode == 0
    assert run(farm, tmp_path, "submit", "a.txt", "--out", "out", "--dry-run").returncode == 0
    away = speechmill("submit", "a.txt", "--dry-run", "--url", "http://127.0.0.1:9", cwd=tmp_path)
    assert (away.returncode, "time unknown" in away.stdout) == (0, True)


def test_jobs_are_listed_shown_watched_fetched_and_deleted(farm: Farm, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", 3)
    sent = json.loads(ask(farm, "submit", str(source), "--out", str(tmp_path / "x"), "--no-wait", "--json").stdout)
    (group,) = sent["groups"]
    watched = ask(farm, "jobs", "watch", group)
    assert (watched.exit_code, watched.stdout.splitlines()[-1]) == (0, f"{group}\tcompleted\t3 total, 3 succeeded")
    listed = ask(farm, "jobs", "list", "--group", group).stdout.splitlines()
    cells = [line.split("\t") for line in listed]
    assert sorted(line[6] for line in cells) == names_of("a", 3)
    job = cells[0][0]
    assert json.loads(ask(farm, "jobs", "show", job, "--request", "--json").stdout)["request"]["input"]
    assert ask(farm, "jobs", "watch", job).exit_code == 0
    assert ask(farm, "jobs", "fetch", group, job, "--out", str(tmp_path / "f")).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "f").glob("*.wav"))[:3] == [f"{n}.wav" for n in names_of("a", 3)]
    mine = tmp_path / "f" / "a-00001.wav"
    mine.write_bytes(b"mine")
    assert "a-00001.wav is there already" in str(ask(farm, "jobs", "fetch", group, "-o", str(mine.parent)).exception)
    assert mine.read_bytes() == b"mine"
    assert ask(farm, "jobs", "fetch", group, "-o", str(mine.parent), "--overwrite").exit_code == 0
    assert mine.read_bytes().startswith(b"RIFF")
    assert ask(farm, "jobs", "list", "--group", group, "--dead").stdout == ""
    assert "succeeded already" in str(ask(farm, "jobs", "cancel", job).exception)
    assert ask(farm, "jobs", "retry", job).exit_code == 1
    assert ask(farm, "jobs", "rm", job).exit_code == 0
    assert "there is no such job" in str(ask(farm, "jobs", "show", job).exception)


def test_a_batch_is_made_watched_and_fetched(farm: Farm, tmp_path: Path) -> None:
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/audio/speech", "body": {"input": "Hello.", "voice": voice}}
        for name, voice in (("good", "heart"), ("bad", "nobody"), ("GOOD", "heart"))
    ]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    made = json.loads(ask(farm, "batches", "create", str(tmp_path / "b.jsonl"), "--metadata", "k=v", "--json").stdout)
    assert made["metadata"] == {"k": "v"}
    assert ask(farm, "batches", "watch", made["id"]).exit_code == 2
    assert made["id"] in ask(farm, "batches", "list").stdout
    fetched = ask(farm, "batches", "fetch", made["id"], "--out", str(tmp_path / "f"))
    names = {Path(line).stem for line in fetched.stdout.splitlines()}
    assert (fetched.exit_code, len(names), len(names & {"good", "GOOD"})) == (2, 2, 1)
    assert "bad: there is no such voice" in fetched.stderr


def test_voices_and_models_are_listed_in_columns_and_as_json(farm: Farm, tmp_path: Path) -> None:
    assert ask(farm, "voices", "list").stdout.startswith("heart\theart\tbuiltin\thibari\tEnglish\t")
    (model, *_) = ask(farm, "models", "--json").stdout.splitlines()
    assert json.loads(model)["id"] == "hibari"
    said = ask(farm, "voices", "say", "heart", "Hello.", "-o", str(tmp_path / "v.wav"), "--json")
    assert (json.loads(said.stdout)["audio_s"] > 0, (tmp_path / "v.wav").exists()) == (True, True)
    clip = httpx.post(f"{farm.base}/v1/audio/speech", json={"input": "This is how I sound, more or less."}, timeout=60)
    (tmp_path / "clip.wav").write_bytes(clip.content)
    added = ask(farm, "voices", "add", "Ann", str(tmp_path / "clip.wav"), "--consent", "her own")
    assert (added.exit_code, added.stdout.split("\t")[1]) == (0, "Ann\n")
    assert ask(farm, "voices", "rm", "ann").exit_code == 0
    assert "there is no such voice" in str(ask(farm, "voices", "rm", "ann").exception)


def test_the_doctor_finds_a_farm_and_does_without_one(farm: Farm, tmp_path: Path) -> None:
    def levels(**more: str) -> tuple[int, dict[str, str]]:
        done = speechmill("doctor", "--json", cwd=tmp_path, **more)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, {one["check"]: one["level"] for one in found}

    code, found = levels(**variables(farm))
    assert code == 0
    assert {found[check] for check in ("python", "encoders", "model hibari", "farm", "ready", "key")} == {"ok"}
    away = {"SPEECHMILL_URL": "http://127.0.0.1:9", "SPEECHMILL_REDIS__CONTROL_URL": "redis://127.0.0.1:9"}
    code, found = levels(SPEECHMILL_MODELS='["nobody"]', **away)
    assert (code, found["farm"], found["redis"], found["model nobody"]) == (1, "warn", "fail", "fail")
    assert "key" not in found


def test_completion_for_the_shell_can_be_shown(tmp_path: Path) -> None:
    shown = subprocess.run(
        [*COMMAND, "--show-completion", "bash"],
        cwd=tmp_path,
        env=environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1", PATH=os.environ["PATH"]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (shown.returncode, "COMP_WORDS" in shown.stdout) == (0, True)
