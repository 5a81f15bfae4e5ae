"""What a distributed run is for: the device of the evaluators that are there, and of one kind only.

Scores of different devices are never compared, so a run has one target from its first event on.
"""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from actors.bus.base import Bus
from evaluators.devices import CPU, devices_of, platform_of
from ksearch_async.refusals import refusal
from ksearch_async.session import Start
from messages.base import Language
from messages.presence import NODES, Presence, decode_presence
from messages.tasks import Target

WAIT_S = 30.0
"""How long a start waits for an evaluator."""
PROVING_S = 600.0
"""The same while one is there that still builds, runs and times its known kernel: on a busy host that takes minutes."""
_LOOK_S = 0.5


async def choose_target(
    bus: Bus, language: Language, own: Target | None, arch: str | None, start: Start, *, wait_s: float = WAIT_S
) -> Target:
    """Return the one target that the evaluators that are there serve in a language.

    Args:
        bus: where evaluators say that they are there.
        language: what candidates are written in.
        own: what an evaluator of this process serves, if there is to be one.
        arch: part of the device's name or architecture that is wanted; null: there is to be one only.
        start: told what is waited for.
        wait_s: how long an evaluator is waited for.

    Raises:
        ConfigError: there is none, or there are several.
        messages.errors.BusError: it cannot be seen who is there.
    """
    said: set[str] = set()
    begun = anyio.current_time()
    while True:
        presences = await read_presences(bus, "evaluator")
        found = [target for target in _targets(presences, language, own) if arch is None or _fits(target, arch)]
        if found:
            start.doing = "checking the reference"
            return _only(found, arch)
        is_proving = any(_may_serve(presence, language) for presence in presences)
        limit_s, still = (PROVING_S, "is ready yet") if is_proving else (wait_s, "is there")
        if anyio.current_time() - begun >= limit_s:
            raise _nobody(presences, language, arch)
        if still not in said:
            start.doing = "waiting for an evaluator"
            start.say(f"no evaluator for {_wanted(language, arch)} {still}; waiting up to {limit_s:g} s for one")
            said.add(still)
        await anyio.sleep(_LOOK_S)


def check_platform(target: Target, device: str) -> None:
    """Accept evaluators like the device on which this process looks at the task: models are told what holds there.

    Raises:
        ConfigError: they are GPUs and it is a CPU, or the other way round.
    """
    here = platform_of(devices_of(device)[0])
    if target.platform == here:
        return
    other = "--device cuda:0, on a host with a GPU" if target.platform == "cuda" else f"--device {CPU}"
    raise refusal(
        f"the run is for {target.device} ({target.arch}), and this process would look at the task on {device}",
        f"lead it with {other}; or choose other evaluators with --arch",
    )


async def read_presences(bus: Bus, role: str) -> list[Presence]:
    """Return who of a role says that it is there.

    Raises:
        messages.errors.BusError: that cannot be read.
    """
    entries = await bus.entries(f"{NODES}{role}.")
    found = (decode_presence(entry.value) for entry in entries.values())
    return [presence for presence in found if presence is not None]


def _targets(presences: Iterable[Presence], language: Language, own: Target | None) -> list[Target]:
    """Return what can be served, each once; ours first."""
    served = [] if own is None else [own]
    for presence in presences:
        if presence.state == "ready":
            served.extend(each.target for each in presence.served if each.language == language)
    return list({(target.fingerprint, target.device): target for target in served}.values())


def _may_serve(presence: Presence, language: Language) -> bool:
    """Say whether one that is not ready yet may come to serve a language."""
    languages = {each.language for each in presence.served}
    return presence.state == "proving" and (not languages or language in languages)


def _fits(target: Target, arch: str) -> bool:
    return arch.lower() == target.arch.lower() or arch.lower() in target.device.lower()


def _only(found: list[Target], arch: str | None) -> Target:
    """Return the one target.

    Raises:
        ConfigError: there are several.
    """
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{target.device!r} ({target.arch}, {target.toolchain})" for target in found)
    wanted = "" if arch is None else f" that {arch!r} fits"
    raise refusal(
        f"evaluators of several devices{wanted} are there: {listed}",
        "a run is for one: choose it with --arch, by its architecture or a part of its name",
    )


def _nobody(presences: list[Presence], language: Language, arch: str | None) -> Exception:
    others = sorted({f"{each.language} on {each.target.device}" for one in presences for each in one.served})
    proving = sum(presence.state == "proving" for presence in presences)
    there = f"; there are: {', '.join(others)}" if others else ""
    there += f"; still proving themselves: {proving}" if proving else ""
    return refusal(
        f"no evaluator for {_wanted(language, arch)} is there{there}",
        "start one on a host that has the device: ksearch evaluator --nats ADDRESS; or let this machine judge: "
        "--with builder,evaluator",
    )


def _wanted(language: Language, arch: str | None) -> str:
    return language if arch is None else f"{language} on {arch!r}"
