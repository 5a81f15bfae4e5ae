"""`ksearch evaluator`: judges candidates for all runs of a NATS server on this host's device."""

from __future__ import annotations

from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.node_flags import PLAIN_DEVICE, PLAIN_NODE, PLAIN_OPERATIONS, DeviceFlags, NodeFlags
from ksearch_async.cli.operations import OperationFlags


def evaluator_command(
    *,
    node: NodeFlags = PLAIN_NODE,
    work: DeviceFlags = PLAIN_DEVICE,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Judge candidates.

    Args:
        node: What every node is started with.
        work: On which device.
        operations: Logs and metrics.
        as_json: Print one JSON object when it has left.
    """
    from ksearch_async.cli.node import device_order, start_node  # noqa: PLC0415 - `--help` needs no bus
    from ksearch_async.duties import Evaluating  # noqa: PLC0415

    return start_node(device_order("evaluator", Evaluating, node, work, operations), as_json=as_json)
