"""The maps of a search's state: entries are set and dropped here, which keeps indexes and the state's hash true."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec
from rpds import HashTrieMap, HashTrieSet

from actors.planner.core.state import Branch, Job, Known, Node, Provisional, SearchState
from actors.planner.core.tree import live_parent

_encoder = msgspec.msgpack.Encoder()
MapName: TypeAlias = Literal["nodes", "branches", "jobs", "known", "provisional"]
Entry: TypeAlias = Node | Branch | Job | Known | Provisional


def put(state: SearchState, name: MapName, key: str, value: Entry) -> SearchState:
    """Return the state with one entry of one of its maps set."""
    entries: HashTrieMap[str, Entry] = getattr(state, name)
    mixed = state.entries_hash ^ _entry_hash(name, key, entries.get(key)) ^ _entry_hash(name, key, value)
    return msgspec.structs.replace(state, **{name: entries.insert(key, value), "entries_hash": mixed})


def put_node(state: SearchState, node: Node) -> SearchState:
    """Return the state with a node set, its parent's count of live children and the indexes kept true."""
    before = state.nodes.get(node.node_id)
    state = _index(put(state, "nodes", node.node_id, node), node)
    if node.node_id not in state.changed_ids and (before is None or before.told_form != node.told_form):
        state = msgspec.structs.replace(state, changed_ids=state.changed_ids.insert(node.node_id))
    if before is not None and _bears(before) != _bears(node):
        state = _index_below(state, node)
    born = node.live - (before is not None and before.live)
    if not born or not node.parent_id:
        return state
    parent = state.node(node.parent_id)
    return put_node(state, msgspec.structs.replace(parent, live_children=parent.live_children + born))


def _bears(node: Node) -> tuple[bool, bool]:
    """Return what of a node decides whether those below it may be tried."""
    return node.state == "closed", node.given_up


def _index_below(state: SearchState, node: Node) -> SearchState:
    for child_id in node.children:
        child = state.node(child_id)
        state = _index(state, child)
        if child.given_up:
            state = _index_below(state, child)
    return state


def _index(state: SearchState, node: Node) -> SearchState:
    may_be_tried = node.state == "open" and not node.barred
    in_frontier = may_be_tried and live_parent(state, state.node(node.parent_id)).state == "closed"
    frontier_ids = _indexed(state.frontier_ids, node.node_id, belongs=in_frontier)
    barren_ids = _indexed(state.barren_ids, node.node_id, belongs=node.barren)
    if frontier_ids is state.frontier_ids and barren_ids is state.barren_ids:
        return state
    return msgspec.structs.replace(state, frontier_ids=frontier_ids, barren_ids=barren_ids)


def _indexed(index: HashTrieSet[str], node_id: str, *, belongs: bool) -> HashTrieSet[str]:
    if belongs == (node_id in index):
        return index
    return index.insert(node_id) if belongs else index.remove(node_id)


def drop(state: SearchState, name: MapName, key: str) -> SearchState:
    """Return the state without one entry of one of its maps; the same state if it is not there."""
    entries: HashTrieMap[str, Entry] = getattr(state, name)
    if key not in entries:
        return state
    mixed = state.entries_hash ^ _entry_hash(name, key, entries[key])
    return msgspec.structs.replace(state, **{name: entries.remove(key), "entries_hash": mixed})


def state_hash(state: SearchState) -> str:
    """Return a hash (blake2b-128, hex) that equal states share and others, but for chance, do not.

    The maps enter by the exclusive or of their entries' hashes, kept up to date by `put` and `drop`: a hash of
    10,000 entries costs no more than one of ten.
    """
    digest = blake2b(state.entries_hash.to_bytes(16, "little"), digest_size=16)
    for name in _PLAIN_FIELDS:
        digest.update(_encoder.encode((name, getattr(state, name))))
    return digest.hexdigest()


def recomputed_entries_hash(state: SearchState) -> int:
    """Return what `entries_hash` has to be, from the maps themselves; for tests."""
    mixed = 0
    for name in _MAPS:
        for key, value in getattr(state, name).items():
            mixed ^= _entry_hash(name, key, value)
    return mixed


_MAPS: tuple[MapName, ...] = ("nodes", "branches", "jobs", "known", "provisional")
_DERIVED = (*_MAPS, "entries_hash", "frontier_ids", "barren_ids", "changed_ids", "snapshot", "told")
"""What follows from the maps and from the facts that made them, and would cost too much to hash again and again."""
_PLAIN_FIELDS = tuple(name for name in SearchState.__struct_fields__ if name not in _DERIVED)


def _entry_hash(name: MapName, key: str, value: Entry | None) -> int:
    if value is None:
        return 0
    return int.from_bytes(blake2b(_encoder.encode((name, key, value)), digest_size=16).digest(), "little")
