"""`ksearch coder`: writes candidates for all runs of a NATS server, with one model."""

from __future__ import annotations

from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.node_flags import PLAIN_MODEL, PLAIN_NODE, PLAIN_OPERATIONS, ModelFlags, NodeFlags
from ksearch_async.cli.operations import OperationFlags


def coder_command(
    *,
    node: NodeFlags = PLAIN_NODE,
    work: ModelFlags = PLAIN_MODEL,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Write candidates.

    Args:
        node: What every node is started with.
        work: With which model.
        operations: Logs and metrics.
        as_json: Print one JSON object when it has left.
    """
    from ksearch_async.cli.node import coder_order, start_node  # noqa: PLC0415 - `--help` needs no bus

    return start_node(coder_order(node, work, operations), as_json=as_json)
