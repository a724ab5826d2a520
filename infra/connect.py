"""From settings to clients: the one place that knows which setting feeds which."""

from redis.exceptions import RedisError

from speechmill.configs.settings import Settings
from speechmill.infra.client import AsyncClient, Client
from speechmill.infra.errors import ConfigError, FarmError
from speechmill.infra.keys import Keys
from speechmill.infra.objects import ObjectStore

ADVICE = "start the whole farm with `speechmill up`, or give a URL"


def check_redis(settings: Settings) -> None:
    """Load the functions once. Raises ConfigError for a bad URL, FarmError when a server does not answer."""
    client = make_client(settings)
    try:
        client.load()
    except RedisError as error:
        raise FarmError(f"Redis does not answer or refuses us: {error}", "redis_unavailable") from error
    finally:
        client.close()


def _urls(settings: Settings) -> tuple[str, str]:
    if not settings.redis.control_url:
        raise ConfigError(f"redis.control_url is not set: {ADVICE} (SPEECHMILL_REDIS__CONTROL_URL)")
    return settings.redis.control_url, settings.chunks_url


def make_client(settings: Settings) -> Client:
    try:
        return Client(*_urls(settings), Keys(settings.redis.prefix))
    except ValueError as error:
        raise ConfigError(f"redis.control_url or redis.chunks_url: {error}") from error


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
