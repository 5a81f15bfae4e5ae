"""What a state keeps up to date fact by fact, worked out from scratch."""

from __future__ import annotations

from actors.planner.core.state import _MAPS, Node, SearchState, _entry_hash


def recomputed_entries_hash(state: SearchState) -> int:
    """What `entries_hash` has to be, from the maps themselves."""
    mixed = 0
    for name in _MAPS:
        for key, value in getattr(state, name).items():
            mixed ^= _entry_hash(name, key, value)
    return mixed


def recomputed_changes(state: SearchState) -> set[str]:
    """Which nodes are told otherwise than they were last told, from the nodes themselves."""
    told: dict[str, Node] = dict(state.snapshot.nodes.items()) if state.snapshot else {}
    for one in state.told:
        told |= {node.node_id: node for node in one.nodes}
    return {
        node_id
        for node_id, node in state.nodes.items()
        if node_id not in told or told[node_id].told_form != node.told_form
    }
