"""Who may time."""

from __future__ import annotations

import anyio
import pytest

from evaluators.lease import HostLease

pytestmark = pytest.mark.anyio


async def test_a_lease_of_the_host_has_one_holder_also_between_evaluators() -> None:
    one, other = HostLease("test"), HostLease("test")
    async with one:
        with anyio.move_on_after(0.05) as scope:
            async with other:
                pytest.fail("held twice")
        assert scope.cancelled_caught
    with anyio.fail_after(1):
        async with other:
            pass


async def test_leases_of_different_devices_are_independent() -> None:
    with anyio.fail_after(1):
        async with HostLease("test-a"), HostLease("test-b"):
            pass
