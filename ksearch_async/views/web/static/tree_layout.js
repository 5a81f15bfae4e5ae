// Where the actions of a tree stand: pure, and the same for the same tree.

import "./vendor/d3-hierarchy/d3-hierarchy.min.js";

const { hierarchy, tree } = globalThis.d3;
const COUSINS_APART = 1.25;

/**
 * Lays a tree out from left to right.
 *
 * @param {Array} nodes `NodeView`s, parents before their children.
 * @returns {{places: Map<string, {x: number, y: number}>, depth: number, breadth: number}} x counts levels from 0, y rows
 *   from 0; both are to be scaled.
 */
export function layoutOf(nodes) {
  const branches = new Map(nodes.map((node) => [node.node_id, { id: node.node_id, children: [] }]));
  let root = null;
  for (const node of nodes) {
    const parent = branches.get(node.parent_id);
    if (parent) parent.children.push(branches.get(node.node_id));
    else root ??= branches.get(node.node_id);
  }
  const places = new Map();
  if (!root) return { places, depth: 0, breadth: 0 };
  const laid = tree()
    .nodeSize([1, 1])
    .separation((left, right) => (left.parent === right.parent ? 1 : COUSINS_APART))(hierarchy(root));
  let [low, high, depth] = [0, 0, 0];
  laid.each((point) => {
    low = Math.min(low, point.x);
    high = Math.max(high, point.x);
    depth = Math.max(depth, point.depth);
  });
  laid.each((point) => places.set(point.data.id, { x: point.depth, y: point.x - low }));
  return { places, depth, breadth: high - low };
}

/** Returns the ids from an action up to the root. */
export function pathTo(nodeId, parentOf) {
  const path = [];
  for (let id = nodeId; id && !path.includes(id); id = parentOf(id)) path.push(id);
  return path;
}
