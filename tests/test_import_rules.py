"""Who may import whom, read from the import statements themselves."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("api", "workers", "models", "configs", "infra", "cli")
ALLOWED = {
    "configs": ["configs"],
    "infra": ["infra", "configs"],
    "workers": ["workers", "infra", "models", "configs"],
    "models": ["models"],
    "api": ["api", "infra", "configs", "models.card", "models.checkpoints", "models.registry"],
    "cli": list(FOLDERS),
}
FAMILY_MAY = ["models.common", "models.stage", "models.card"]
SHARED = {"common", "card", "checkpoints", "measure", "registry", "stage"}
"""What stands beside the families in `models`."""


def modules(folder: str) -> list[str]:
    """Dotted names below `speechmill`, packages included."""
    parts = (path.relative_to(ROOT).with_suffix("").parts for path in sorted((ROOT / folder).rglob("*.py")))
    return [".".join(part for part in one if part != "__init__") for one in parts]


def source(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(module: str) -> Iterator[str]:
    """Dotted names below `speechmill` that the module imports, anywhere in it."""
    for node in ast.walk(ast.parse(source(module).read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.removeprefix("speechmill.") for name in names if name.startswith("speechmill."))


def allowed(module: str) -> list[str]:
    folder, *inner = module.split(".")
    if folder == "models" and inner and inner[0] not in SHARED:
        return [f"models.{inner[0]}", *FAMILY_MAY]
    return ALLOWED[folder]


def within(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}.")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    wrong = [
        f"{module} imports {name}"
        for module in modules(folder)
        for name in imports(module)
        if not any(within(name, place) for place in allowed(module))
    ]
    assert wrong == []


def test_the_rules_see_every_folder() -> None:
    assert all(modules(folder) for folder in FOLDERS)


@pytest.mark.parametrize("folder", ["api", "infra", "configs", "cli"])
def test_importing_all_of_a_folder_loads_no_torch(folder: str) -> None:
    names = [f"speechmill.{module}" for module in modules(folder) if not module.endswith("__main__")]
    program = f"import sys\nfor name in {names}:\n    __import__(name)\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
