"""The cases and their fixture: the shared ones, or those of the file that `SPEECHMILL_CASES` names."""

import json
import os
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "fixtures"
DOCUMENT: dict[str, Any] = json.loads(
    Path(os.environ.get("SPEECHMILL_CASES") or FIXTURES / "speech_api" / "cases.json").read_text(encoding="utf-8")
)
