"""`speechmill models`: what a farm serves."""

from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.tables import Columns, show_table

COLUMNS: Columns = {
    "id": lambda model: model["id"],
    "status": lambda model: model["status"],
    "alias of": lambda model: model.get("alias_of"),
    "languages": lambda model: ", ".join(model["capabilities"]["languages"]),
    "Hz": lambda model: model["capabilities"]["native_sample_rate"],
    "voices": lambda model: model["capabilities"]["voices"],
    "clones": lambda model: model["capabilities"]["ref_audio"],
    "licence": lambda model: model["license"],
}


def models(url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Models that the farm serves, and their other names."""
    with Remote(url, key) as farm:
        show_table(farm.told("GET", "/v1/models")["data"], COLUMNS, as_json)
