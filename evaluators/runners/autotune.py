"""`triton.autotune` where nothing can be measured; and which configurations ran, for the log of a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner

_MOST_TOLD = 6


def take_first_configurations() -> None:
    """Have every autotuned kernel of this process take the first of its configurations, without measuring."""
    run = Autotuner.run

    def run_first(tuner: Autotuner, *args: object, **options: object) -> object:
        tuner.configs = tuner.configs[:1]
        return run(tuner, *args, **options)

    Autotuner.run = run_first


def remember_configurations() -> Callable[[], str]:
    """Note which configuration each autotuned kernel of this process runs. Returns what says so, one kernel a line."""
    bench, run = Autotuner._bench, Autotuner.run  # noqa: SLF001 - what tries a configuration has no public name
    ran: dict[str, Any] = {}

    def noted_bench(tuner: Any, *args: object, config: object, **options: object) -> object:
        ran[tuner.base_fn.__name__] = f"{config} (being tuned)"
        return bench(tuner, *args, config=config, **options)

    def noted_run(tuner: Any, *args: object, **options: object) -> object:
        result = run(tuner, *args, **options)
        ran[tuner.base_fn.__name__] = tuner.best_config
        return result

    Autotuner._bench, Autotuner.run = noted_bench, noted_run  # noqa: SLF001
    return lambda: "".join(f"{name} ran with {config}\n" for name, config in [*ran.items()][-_MOST_TOLD:])
