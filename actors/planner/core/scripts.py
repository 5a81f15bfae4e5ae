"""Edit scripts of the planner's model: their conflicts and their changes.

A script is checked as a whole, against the state when it arrives. Changes by the machine since the model was asked are
no conflict: pruning a node in flight means "when its branches end", and a child of a given-up node goes under the
nearest ancestor that was not given up. Conflicts are references that never existed, illegal values, repeated nodes, and
contradictions to the model's earlier edits or to a person's orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.planner.core.state import Node, SearchState, ancestors, live_parent
from actors.planner.core.steering import contradiction
from messages.base import ROOT, copied
from messages.edits import Edit, EditScript, Insert, Proposal, Prune, Refusal, Split, Update
from messages.events import EditsProposed
from messages.facts import NodeInserted, NodePruned, NodeUpdated

Change = NodeInserted | NodeUpdated | NodePruned
WHOLE = -1
"""`Refusal.index` for the script as a whole."""


def conflicts(state: SearchState, script: EditScript, *, limit: int) -> tuple[Refusal, ...]:
    """Return why the script, with at most `limit` new nodes, cannot be applied; empty if it can be."""
    check = _Check(state)
    refusals = [
        Refusal(index=index, reason=reason)
        for index, edit in enumerate(script.edits)
        if (reason := check.reason(edit)) is not None
    ]
    if check.new_nodes > limit:
        refusals.append(Refusal(index=WHOLE, reason=f"{check.new_nodes} new nodes; at most {limit} in one script"))
    return tuple(refusals)


def without_refused(script: EditScript, refusals: Sequence[Refusal], *, limit: int) -> tuple[int, ...]:
    """Return the positions of the edits that depend on no refused edit, with at most `limit` new nodes."""
    refused = {refusal.index for refusal in refusals}
    gone: set[str] = set()
    kept: list[int] = []
    for index, edit in enumerate(script.edits):
        depends = isinstance(edit, Insert) and edit.parent in gone
        size = _new_nodes(edit)
        if index in refused or depends or size > limit:
            gone |= {edit.key} - {""} if isinstance(edit, Insert) else set()
            continue
        limit -= size
        kept.append(index)
    return tuple(kept)


def in_answer(refusals: tuple[Refusal, ...], event: EditsProposed) -> tuple[Refusal, ...]:
    """Return all refusals by position in the answer, including those of unreadable edits."""
    unread = {refusal.index for refusal in event.unread}
    count = len(unread) + (len(event.script.edits) if event.script else 0)
    places = {WHOLE: WHOLE, **dict(enumerate(index for index in range(count) if index not in unread))}
    return event.unread + tuple(Refusal(index=places[each.index], reason=each.reason) for each in refusals)


def changes(state: SearchState, edits: Sequence[Edit]) -> tuple[Change, ...]:
    """Return the changes of conflict-free edits, with ids assigned in order."""
    ids: dict[str, str] = {}
    found: list[Change] = []
    count = len(state.nodes)

    def insert(parent_id: str, proposal: Insert | Proposal) -> str:
        nonlocal count
        node_id, count = f"n{count}", count + 1
        second_id = proposal.merge if isinstance(proposal, Insert) else ""
        found.append(copied(NodeInserted, proposal, node_id=node_id, parent_id=parent_id, second_id=second_id))
        return node_id

    for edit in edits:
        match edit:
            case Insert():
                parent_id = ids.get(edit.parent) or live_parent(state, state.node(edit.parent)).node_id
                ids[edit.key] = insert(parent_id, edit)
                ids.pop("", None)
            case Update():
                found.append(copied(NodeUpdated, edit, node_id=edit.node))
            case Prune():
                found.append(NodePruned(node_id=edit.node, reason=edit.reason))
            case Split():
                parent = live_parent(state, state.node(state.node(edit.node).parent_id))
                for part in edit.into:
                    insert(parent.node_id, part)
                found.append(NodePruned(node_id=edit.node, reason="split"))
    return tuple(found)


def _new_nodes(edit: Edit) -> int:
    match edit:
        case Insert():
            return 1
        case Split(into=parts):
            return len(parts)
        case Update() | Prune():
            return 0


class _Check:
    def __init__(self, state: SearchState) -> None:
        self._state = state
        self._keys: dict[str, str] = {}
        """Parent of each earlier insert, by the insert's key."""
        self._titles: dict[str, dict[str, str]] = {}
        self.new_nodes = 0

    def reason(self, edit: Edit) -> str | None:
        self.new_nodes += _new_nodes(edit)
        if (ordered := contradiction(self._state, edit)) is not None:
            return ordered
        match edit:
            case Insert():
                return self._insert(edit)
            case Update():
                return self._update(edit)
            case Prune(node=node_id):
                return self._target(node_id)
            case Split():
                return self._split(edit)

    def _insert(self, edit: Insert) -> str | None:
        if edit.key and (edit.key in self._keys or edit.key in self._state.nodes):
            return f"key {edit.key!r} is taken"
        is_known = edit.parent in self._keys
        if edit.key:
            self._keys[edit.key] = edit.parent
        if not is_known and (reason := self._parent(edit.parent)) is not None:
            return reason
        if edit.merge and (reason := self._merge(edit)) is not None:
            return reason
        return self._title(edit.parent, edit.title)

    def _parent(self, node_id: str) -> str | None:
        if (parent := self._state.nodes.get(node_id)) is None:
            return f"parent {node_id!r} does not exist"
        if parent.state == "pruned" and not parent.given_up:
            return f"parent {node_id!r} was pruned: {parent.prune_reason}"
        return None

    def _merge(self, edit: Insert) -> str | None:
        """Refuse a second parent that has no code, or that is an ancestor or a descendant of the first."""
        if edit.merge == ROOT or (second := self._state.nodes.get(edit.merge)) is None:
            return f"merge {edit.merge!r} is no node with a technique to merge"
        if second.best is None:
            return f"merge {edit.merge!r} has no correct candidate: only closed nodes can be merged"
        if edit.parent in (above.node_id for above in ancestors(self._state, second)):
            return f"merge {edit.merge!r} builds on {edit.parent!r} already: insert under {edit.merge!r} instead"
        if edit.merge in self._path(edit.parent):
            return f"merge {edit.merge!r} lies on the path of {edit.parent!r}: its technique is in that code already"
        return None

    def _path(self, name: str) -> set[str]:
        for _ in self._keys:  # a bound on the steps: refused inserts may name each other
            name = self._keys.get(name, name)
        node = self._state.nodes.get(name)
        return {node.node_id, *(above.node_id for above in ancestors(self._state, node))} if node else set()

    def _update(self, edit: Update) -> str | None:
        believed = (edit.priority, edit.difficulty, edit.title, edit.description, edit.expected_gain)
        if all(value is None for value in believed):
            return f"nothing to change for {edit.node!r}"
        return self._target(edit.node) or self._rename(edit)

    def _rename(self, edit: Update) -> str | None:
        """Refuse a new title that a living sibling has; on success the old title becomes free."""
        node = self._state.node(edit.node)
        if edit.title is None or node.state == "pruned" or _comparable(edit.title) == _comparable(node.title):
            return None
        if (reason := self._title(node.parent_id, edit.title)) is not None:
            return reason
        self._siblings(node.parent_id).pop(_comparable(node.title), None)
        return None

    def _split(self, edit: Split) -> str | None:
        if (reason := self._target(edit.node)) is not None:
            return reason
        node = self._state.node(edit.node)
        if node.state == "pruned" and not node.given_up:
            return f"{edit.node!r} was pruned: {node.prune_reason}"
        for part in edit.into:
            if (reason := self._title(node.parent_id, part.title)) is not None:
                return reason
        return None

    def _target(self, node_id: str) -> str | None:
        if node_id == ROOT:
            return f"{ROOT!r} is the root: it cannot be changed"
        if node_id not in self._state.nodes:
            return f"node {node_id!r} does not exist"
        return None

    def _title(self, parent_id: str, title: str) -> str | None:
        titles = self._siblings(parent_id)
        wanted = _comparable(title)
        if (there := titles.get(wanted)) is not None:
            return f"{there or 'another insert'} under {parent_id!r} is called {title!r} already"
        titles[wanted] = ""
        return None

    def _siblings(self, parent_id: str) -> dict[str, str]:
        """Return the titles under a parent, mapped to node ids; the id is empty for nodes of this script."""
        parent = self._state.nodes.get(parent_id)
        place = live_parent(self._state, parent) if parent else None
        place_id = place.node_id if place else parent_id
        if place_id not in self._titles:
            children = _living_children(self._state, place) if place else ()
            self._titles[place_id] = {_comparable(child.title): child.node_id for child in children}
        return self._titles[place_id]


def _living_children(state: SearchState, parent: Node) -> Iterator[Node]:
    """Yield the children that are not pruned, and the living children of given-up children."""
    for child_id in parent.children:
        child = state.node(child_id)
        if child.state != "pruned":
            yield child
        elif child.given_up:
            yield from _living_children(state, child)


def _comparable(title: str) -> str:
    return title.casefold().strip()
