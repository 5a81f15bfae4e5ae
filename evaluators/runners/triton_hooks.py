"""Changes to Triton in this process: autotuning without measuring, notes of configurations, counts of launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

_MOST_TOLD = 6


def take_first_configurations() -> None:
    """Have every autotuned kernel of this process run its first configuration, without measuring."""
    run = Autotuner.run

    def run_first(tuner: Autotuner, *args: object, **options: object) -> object:
        tuner.configs = tuner.configs[:1]
        return run(tuner, *args, **options)

    Autotuner.run = run_first


def remember_configurations() -> Callable[[], str]:
    """Note the configuration that each autotuned kernel runs. Returns a function that lists them, one a line."""
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


class Launches:
    """Counts kernel launches in this process, interpreted or compiled. Advice: a program that wants to can fool it."""

    def __init__(self) -> None:
        self.count = 0
        """Since it was last set to 0."""
        for kind in (InterpretedFunction, JITFunction):
            kind.run = self._counted(kind.run)

    def _counted(self, run: Callable[..., object]) -> Callable[..., object]:
        def counted(kernel: object, *args: object, **options: object) -> object:
            self.count += not options.get("warmup")
            return run(kernel, *args, **options)

        return counted
