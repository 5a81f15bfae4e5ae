from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from actors.bus.waiting import Line, Place, first_of

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Shelf:
    def __init__(self) -> None:
        self.line = Line()
        self.things: list[str] = []
        self.taken: list[tuple[str, str]] = []
        self.place = Place(self.line, self._look, lambda: None)

    async def take(self, who: str) -> None:
        self.taken.append((who, await first_of([self.place])))

    def _look(self) -> str | None:
        return self.things.pop(0) if self.things else None

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

    assert await first_of([Place(shelf.line, look, lambda: due_s)]) == "ripe"
    assert anyio.current_time() == pytest.approx(due_s)


async def test_who_stands_in_two_lines_gets_what_comes_first_and_leaves_both() -> None:
    left, right = Shelf(), Shelf()
    got: list[str] = []

    async def wait() -> None:
        got.append(await first_of([left.place, right.place]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(1)
        right.put("one")
        await anyio.sleep(1)
        tasks.start_soon(left.take, "next")
        tasks.start_soon(right.take, "other")
        await anyio.sleep(1)
        left.put("two")
        right.put("three")
    assert got == ["one"]
    assert left.taken == [("next", "two")]
    assert right.taken == [("other", "three")]
