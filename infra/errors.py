"""Everything that can go wrong on purpose. Each error has a stable code; its text says what to do.

FarmError
├── BadInput            the request itself is at fault
├── Overloaded          not now: the queue is full, nobody works, memory is short, or we are shutting down
├── StoreUnavailable    the object store does not answer
├── ObjectExists        another object already has that key
├── EmbeddedFailed      an embedded server could not be started
└── ConfigError         settings, profile or installation are at fault
"""


class FarmError(Exception):
    """Base of all errors that are ours."""

    code = "internal_error"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class BadInput(FarmError):
    """Maps to 400; `param` names the field."""

    code = "invalid_value"

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, code)
        self.param = param


class Overloaded(FarmError):
    """Maps to 503; `retry_after_s` is an honest estimate."""

    code = "queue_full"

    def __init__(self, message: str, code: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message, code)
        self.retry_after_s = retry_after_s


class StoreUnavailable(FarmError):
    code = "store_unavailable"


class ObjectExists(FarmError):
    code = "object_exists"


class EmbeddedFailed(FarmError):
    code = "embedded_failed"


class ConfigError(FarmError):
    code = "config_error"
