"""The real servers, started once for the whole run; tests keep apart by key prefix and bucket."""

from collections.abc import Iterator
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from hypothesis import settings

from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey

# A busy machine is not a failure.
settings.register_profile("farm", deadline=None)
settings.load_profile("farm")


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path_factory.mktemp("valkey"), max_memory_mb=256)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    server = EmbeddedS3(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    """Goes in front of every key of one test."""
    return f"test-{uuid4().hex[:12]}:"


@pytest.fixture
def bucket(s3: EmbeddedS3) -> Iterator[str]:
    """An empty bucket of the test's own."""
    name = f"test-{uuid4().hex[:12]}"
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint_url,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        region_name="us-east-1",
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    client.create_bucket(Bucket=name)
    yield name
    # SeaweedFS reserves volumes for each bucket, and deletes one with everything in it.
    client.delete_bucket(Bucket=name)
    client.close()
