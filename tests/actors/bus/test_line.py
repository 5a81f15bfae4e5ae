from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from actors.bus.line import Line

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Shelf:
    def __init__(self) -> None:
        self.line = Line()
        self.things: list[str] = []
        self.taken: list[tuple[str, str]] = []

    async def take(self, who: str) -> None:
        thing = await self.line.wait_for(lambda: self.things.pop(0) if self.things else None, lambda: None)
        self.taken.append((who, thing))

    def put(self, thing: str) -> None:
        self.things.append(thing)
        self.line.call()


@pytest.mark.parametrize("head_start", range(4))
async def test_who_comes_later_does_not_get_what_was_called_out_to_the_first(head_start: int) -> None:
    shelf = Shelf()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shelf.take, "early")
        await anyio.sleep(1)
        tasks.start_soon(shelf.take, "late")
        for _ in range(head_start):
            await checkpoint()
        shelf.put("one")
        await anyio.sleep(1)
        shelf.put("two")
    assert shelf.taken == [("early", "one"), ("late", "two")]


async def test_what_was_called_out_to_one_who_left_goes_to_the_next() -> None:
    shelf = Shelf()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:

            async def leave() -> None:
                await anyio.sleep(1)
                first.cancel()
                shelf.put("one")

            tasks.start_soon(leave)
            await checkpoint()
            tasks.start_soon(later, shelf)
            await shelf.take("first")
    assert shelf.taken == [("next", "one")]


async def later(shelf: Shelf) -> None:
    await anyio.sleep(0.5)
    await shelf.take("next")


async def test_the_first_looks_again_when_something_is_due_without_a_call() -> None:
    shelf = Shelf()
    due_s = 7.0

    def look() -> str | None:
        return "ripe" if anyio.current_time() >= due_s else None

    assert await shelf.line.wait_for(look, lambda: due_s) == "ripe"
    assert anyio.current_time() == pytest.approx(due_s)
