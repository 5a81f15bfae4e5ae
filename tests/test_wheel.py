"""What is installed is what was tested: the wheel is built, looked at, and run from."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ksearch_async", "actors", "evaluators", "messages")
TABLES = {
    "evaluators/hardware/gpus.toml",
    "ksearch_async/settings/prices.toml",
    "evaluators/tasks/problems/rmsnorm_silu.py",
    *(f"{package}/py.typed" for package in PACKAGES),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_module_every_table_and_the_dashboards_page(wheel: Path) -> None:
    wanted = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")} | TABLES
    page = ROOT / "ksearch_async" / "views" / "web" / "static"
    wanted |= {str(path.relative_to(ROOT)) for path in page.rglob("*") if path.is_file()}
    assert "ksearch_async/views/web/static/index.html" in wanted
    held = set(zipfile.ZipFile(wheel).namelist())
    assert wanted - held == set()


def test_the_wheel_holds_nothing_but_the_packages(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert [name for name in names if name.partition("/")[0] not in PACKAGES or "__pycache__" in name] == []


def test_the_command_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """From another folder, where nothing of the checkout can be imported by chance."""
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    told = "import ksearch_async; print(ksearch_async.__file__)"
    for command, wanted in ((["-c", told], str(installed)), (["-m", "ksearch_async", "tasks"], "rmsnorm_silu")):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, wanted in done.stdout) == (0, True), done.stdout + done.stderr
