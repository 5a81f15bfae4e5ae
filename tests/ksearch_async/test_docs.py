"""What the reference says is what there is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ksearch_async.cli import app
from ksearch_async.settings.effort import EFFORTS
from ksearch_async.settings.options import reference_table
from ksearch_async.settings.run_config import CoderSettings, Member, Overrides, RunConfig, flatten

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_table_of_settings_is_what_is_declared() -> None:
    """`python -m ksearch_async.settings.options` writes it anew."""
    assert f"| default | meaning |\n|---|---|---|---|---|\n{reference_table()}\n" in (
        REFERENCE / "configuration.md"
    ).read_text(encoding="utf-8")


def test_every_key_of_a_configuration_is_named_in_the_reference() -> None:
    text = (REFERENCE / "configuration.md").read_text()
    for path, _ in flatten(msgspec.to_builtins(RunConfig(task="t"))):
        assert f"`{path}`" in text or f"`{path.rpartition('.')[2]}`" in text, path


def test_every_key_of_a_role_and_of_one_of_several_models_is_named_in_the_reference() -> None:
    keys = (REFERENCE / "configuration.md").read_text().partition("\n## Keys\n")[2].partition("\n## ")[0]
    for field in {*Overrides.__struct_fields__, *CoderSettings.__struct_fields__, *Member.__struct_fields__}:
        assert f"`{field}`" in keys or field in ("base_url", "choice"), field  # these have flags


def test_the_table_of_efforts_is_what_they_stand_for() -> None:
    text = (REFERENCE / "configuration.md").read_text()
    for effort, numbers in EFFORTS.items():
        assert f"| effort | {' | '.join(f'`{path}`' for path in numbers)} |" in text
        assert f"| `{effort}` | {' | '.join(map(str, numbers.values()))} |" in text


def test_every_command_is_in_the_reference() -> None:
    text = (REFERENCE / "cli.md").read_text()
    for name in app:
        assert name.startswith("-") or f"`ksearch {name}" in text
