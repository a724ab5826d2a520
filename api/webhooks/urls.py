"""Where events may be sent (speech_api §6.1)."""

from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.infra.addresses import Forbidden


async def check_url(farm: FarmState, url: str, param: str) -> None:
    """Raises ApiError 400 `webhook_url_forbidden` where events must not be sent (speech_api §6.1)."""
    try:
        await farm.poster.check(url)
    except Forbidden as error:
        raise ApiError(400, "webhook_url_forbidden", f"{param}: {error}", param) from None
