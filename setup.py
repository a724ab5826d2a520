"""Maps the top-level folders under the import name `speechmill`; everything else stands in pyproject.toml."""

from setuptools import find_packages, setup

ROOTS = ("api", "workers", "models", "configs", "infra", "cli")
PACKAGES = [name for root in ROOTS for name in (root, *(f"{root}.{sub}" for sub in find_packages(root)))]

setup(
    packages=[f"speechmill.{name}" for name in PACKAGES],
    package_dir={f"speechmill.{root}": root for root in ROOTS},
)
