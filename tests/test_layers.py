"""What import-linter cannot see: what importing the pure layers loads, and what the lock holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.glob("penstock/**/*.py")
)
PURE = ("penstock.errors", "penstock.schema", "penstock.language", "penstock.plan")
ARRAYS = ("penstock.kernels", "penstock.control")


def modules_of(layers: tuple[str, ...]) -> list[str]:
    return [m for m in MODULES if any(m == layer or m.startswith(layer + ".") for layer in layers)]


def loaded_by(modules: list[str], suspects: set[str]) -> set[str]:
    """Which of the suspects a fresh interpreter has loaded after importing the modules."""
    imports = "".join(f"import {module}\n" for module in modules)
    program = f"import sys\n{imports}print(*({suspects!r} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_penstock_loads_no_heavy_library() -> None:
    assert loaded_by(["penstock"], {"pyspark", "numba", "pyarrow", "sqlglot"}) == set()


def test_importing_language_and_plan_loads_neither_spark_nor_kernels() -> None:
    assert loaded_by(modules_of(PURE), {"pyspark", "numba", "penstock.runtime"}) == set()


def test_importing_kernels_and_control_loads_neither_spark_nor_the_parser() -> None:
    assert loaded_by(modules_of(ARRAYS), {"pyspark", "sqlglot", "penstock.runtime"}) == set()


def test_importing_the_exchange_loads_no_spark() -> None:
    suspects = {"pyspark", "numba", "sqlglot", "penstock.runtime"}
    assert loaded_by(modules_of(("penstock.exchange",)), suspects) == set()


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "base", "core", "misc"])
def test_no_module_is_named_after_nothing(name: str) -> None:
    assert [m for m in MODULES if m.rsplit(".", 1)[-1] == name] == []


def test_every_locked_package_has_a_version_and_a_hash_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=\S)", lock.strip())
    assert len(entries) > 30
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\d\S*( ; [^\\]+)? \\\n", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in lock
