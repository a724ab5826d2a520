"""Celery's tasks work with the settings that the command was given."""

import pytest

from speechmill.configs.settings import load
from speechmill.infra.embedded import EmbeddedValkey
from speechmill.workers import celery_app


def test_tasks_use_the_settings_of_the_command_line(valkey: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celery_app.app, "start", lambda arguments: None)
    monkeypatch.setattr(celery_app, "_given", [])
    given = load(assignments=["redis.prefix=mine", f"redis.control_url={valkey.url}"])
    celery_app._settings.cache_clear()
    celery_app.run_worker(given, lambda group: None)
    assert celery_app._settings() is given
    celery_app._settings.cache_clear()
