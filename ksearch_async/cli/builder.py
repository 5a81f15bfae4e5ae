"""`ksearch builder`: compiles candidates for all runs of a NATS server with this host's compilers."""

from __future__ import annotations

from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.node_flags import PLAIN_DEVICE, PLAIN_NODE, PLAIN_OPERATIONS, DeviceFlags, NodeFlags
from ksearch_async.cli.operations import OperationFlags


def builder_command(
    *,
    node: NodeFlags = PLAIN_NODE,
    work: DeviceFlags = PLAIN_DEVICE,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Compile candidates.

    Args:
        node: What every node is started with.
        work: For which device.
        operations: Logs and metrics.
        as_json: Print one JSON object when it has left.
    """
    from ksearch_async.cli.node import device_order, start_node  # noqa: PLC0415 - `--help` needs no bus
    from ksearch_async.duties import Building  # noqa: PLC0415

    return start_node(device_order("builder", Building, node, work, operations), as_json=as_json)
