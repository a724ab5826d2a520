"""From settings to clients: the one place that knows which setting feeds which."""

from speechmill.configs.settings import Settings
from speechmill.infra.client import AsyncClient, Client
from speechmill.infra.errors import ConfigError
from speechmill.infra.keys import Keys
from speechmill.infra.objects import ObjectStore

ADVICE = "start the whole farm with `speechmill up`, or give a URL"


def _urls(settings: Settings) -> tuple[str, str]:
    if not settings.redis.control_url:
        raise ConfigError(f"redis.control_url is not set: {ADVICE} (SPEECHMILL_REDIS__CONTROL_URL)")
    return settings.redis.control_url, settings.chunks_url


def make_client(settings: Settings) -> Client:
    return Client(*_urls(settings), Keys(settings.redis.prefix))


def make_async_client(settings: Settings) -> AsyncClient:
    return AsyncClient(*_urls(settings), Keys(settings.redis.prefix))


def make_objects(settings: Settings) -> ObjectStore:
    """Without an endpoint the keys of the environment and AWS itself are used, as boto3 does."""
    s3 = settings.s3
    return ObjectStore(
        bucket=s3.bucket,
        endpoint_url=s3.endpoint_url,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        region=s3.region,
        public_endpoint_url=s3.public_endpoint_url,
    )
