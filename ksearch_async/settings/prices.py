"""Prices of models: the shipped table, the user's own, and a file that a run names. The later go first.

A price has a date and a source, since it changes without notice. A model without one is counted in tokens only.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ksearch_async.errors import refusal
from messages.models import Dollars, Price

DEFAULT_ENDPOINT = "api.openai.com"
"""Host of the openai package's default address."""
FREE = Price(input_usd=0.0, cached_usd=0.0, output_usd=0.0, source="nothing is asked that costs money")
_SHIPPED = Path(__file__).with_name("prices.toml")


_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""At the end of a model's name: `gpt-5-2025-08-07`, `small-20250807`."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of a table: models that cost the same."""

    models: tuple[str, ...]
    """Names as the endpoint knows them; a date that follows one (`-2026-01-31`) is passed over."""
    input_usd: Dollars
    output_usd: Dollars
    """Of completion tokens, hidden reasoning included."""
    cached_usd: Dollars | None = None
    """Null: what other prompt tokens cost."""
    endpoint: str | None = None
    """Host for which it holds; null: any."""
    dated: str = ""
    source: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of prices."""

    price: tuple[Entry, ...] = ()


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Tables, the one that counts first at the front."""

    tables: tuple[Table, ...]

    def of(self, name: str, base_url: str | None) -> Price | None:
        """Return what a model costs at an endpoint; None if no table says so."""
        host = (urlsplit(base_url).hostname or "") if base_url else DEFAULT_ENDPOINT
        entries = [entry for table in self.tables for entry in table.price if entry.endpoint in (None, host)]
        for known in (name, _DATE.sub("", name)):
            for entry in entries:
                if known in entry.models:
                    return Price(
                        input_usd=entry.input_usd,
                        cached_usd=entry.input_usd if entry.cached_usd is None else entry.cached_usd,
                        output_usd=entry.output_usd,
                        dated=entry.dated,
                        source=entry.source,
                    )
        return None


def read_prices(named: str | None, environment: Mapping[str, str] = os.environ) -> Prices:
    """Read the tables: a named one, the user's if there is one, the shipped one.

    Raises:
        ConfigError: one cannot be read, or is no table of prices.
    """
    own = user_table(environment)
    paths = [*([Path(named).expanduser()] if named else []), *([own] if own.is_file() else []), _SHIPPED]
    return Prices(tables=tuple(_read(path) for path in paths))


def user_table(environment: Mapping[str, str]) -> Path:
    """Return where the user's own prices are: `prices.toml` in the folder of ksearch's configuration."""
    folder = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "ksearch" / "prices.toml"


def _read(path: Path) -> Table:
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise refusal(f"cannot read the prices in {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refusal(f"{str(path)!r} is not TOML: {error}") from error
    try:
        return msgspec.convert(content, Table)
    except msgspec.ValidationError as error:
        raise refusal(
            f"{str(path)!r} is no table of prices: {error}",
            'each [[price]] has `models = ["NAME"]`, `input_usd` and `output_usd` per million tokens',
        ) from error
