"""One line of JSON per event, with ids and never with text or audio of users."""

import json
import logging
import sys
from typing import Any

_RESERVED = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """`log.info("claimed", extra={"job": …})` becomes one JSON object."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "role": self._role,
            "event": record.getMessage(),
        }
        line.update({key: value for key, value in vars(record).items() if key not in _RESERVED})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(role: str, level: str) -> None:
    """Send every logger of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(role))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("botocore", "boto3", "urllib3", "httpx", "httpcore", "kombu", "amqp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
