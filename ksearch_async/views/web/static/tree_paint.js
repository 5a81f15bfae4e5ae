// Draws a tree on a canvas: few paths of many parts, one a colour, and no more detail than can be seen.

import { color } from "./theme.js";

const LABEL_ROW = 15; // px between rows, from which on titles are drawn
const SECOND_ROW = 30; // and a second line below them
const LABEL_COLUMN = 90; // px between levels, likewise
const LAST_LABEL = 178; // px for titles that nothing stands behind,
const LEAST_LABEL = 48; // and at the edge at least, so that one that is panned out of sight goes as a whole
const CURVED_ROW = 5;
const DOTS_BELOW = 2.1; // px of radius: smaller shapes are drawn as squares
const TONES = [
  "text", "text-quiet", "panel", "edge", "edge-best", "best", "in-flight", "focus", "fate-none", "fate-measured", "fate-scored",
  "fate-outpaced", "fate-unstable", "fate-wrong", "fate-did_not_build", "fate-crashed", "fate-timed_out", "fate-rejected",
  "fate-quarantined", "fate-unusable", "fate-declined", "fate-duplicate",
];

/** Returns the colours that drawings need, as they are now; asking for each while drawing would be slow. */
export function readPalette() {
  return Object.fromEntries(TONES.map((tone) => [tone, color(tone)]));
}

/** Returns the radius of an action at a scale, px: `size` is 0 to 1. */
export function radiusOf(spot, camera) {
  const base = Math.max(1.3, Math.min(6, camera.scaleY * 0.36, camera.scaleX * 0.2));
  return base * (0.75 + 0.75 * spot.size);
}

/**
 * Draws a scene.
 *
 * @param {CanvasRenderingContext2D} canvas
 * @param {{spots: Array}} scene spots: `{node, x, y, parent: spot|null, tone, shape, size, title, told}` and the
 *   claims
 *   `isOnPath`, `isBest`, `isFaint`, `isLeaf`, `isLast` (of the deepest level)
 * @param {{scaleX, scaleY, left, top}} camera layout units to px.
 * @param {Object} palette from `readPalette`.
 * @param {{left, top, right, bottom}} box px that are seen.
 */
export function paintTree(canvas, scene, camera, palette, box) {
  const seen = scene.spots.filter((spot) => isSeen(spot, camera, box));
  paintEdges(canvas, seen, camera, palette);
  paintSpots(canvas, seen, camera, palette);
  if (camera.scaleY >= LABEL_ROW && camera.scaleX >= LABEL_COLUMN) paintLabels(canvas, seen, camera, palette, box.right);
}

/** Adds an action's outline to a path. */
export function outline(path, shape, x, y, radius) {
  if (shape === "diamond") {
    const reach = radius * 1.2;
    path.moveTo(x, y - reach);
    path.lineTo(x + reach, y);
    path.lineTo(x, y + reach);
    path.lineTo(x - reach, y);
    path.closePath();
  } else if (shape === "root") {
    path.rect(x - radius, y - radius, 2 * radius, 2 * radius);
  } else if (shape === "cross") {
    const reach = radius * 0.7;
    path.moveTo(x - reach, y - reach);
    path.lineTo(x + reach, y + reach);
    path.moveTo(x + reach, y - reach);
    path.lineTo(x - reach, y + reach);
  } else {
    path.moveTo(x + radius, y);
    path.arc(x, y, radius, 0, 2 * Math.PI);
  }
}

/** Returns where an action stands, px. */
export function spotAt(spot, camera) {
  return [spot.x * camera.scaleX + camera.left, spot.y * camera.scaleY + camera.top];
}

function isSeen(spot, camera, box) {
  const [x, y] = spotAt(spot, camera);
  const top = spot.parent ? Math.min(y, spotAt(spot.parent, camera)[1]) : y;
  const bottom = spot.parent ? Math.max(y, spotAt(spot.parent, camera)[1]) : y;
  return bottom >= box.top - 20 && top <= box.bottom + 20 && x >= box.left - 20 && x - camera.scaleX <= box.right;
}

function paintEdges(canvas, seen, camera, palette) {
  const plain = new Path2D();
  const marked = new Path2D();
  for (const spot of seen) {
    if (spot.parent) addEdge(spot.isOnPath ? marked : plain, spot, camera);
  }
  canvas.lineWidth = camera.scaleY < CURVED_ROW ? 0.7 : 1.2;
  canvas.strokeStyle = palette.edge;
  canvas.stroke(plain);
  canvas.lineWidth = 2;
  canvas.strokeStyle = palette["edge-best"];
  canvas.stroke(marked);
}

/** A line along the parent's row, so that its title stands on it, and a turn just before the child. */
function addEdge(path, spot, camera) {
  const [fromX, fromY] = spotAt(spot.parent, camera);
  const [toX, toY] = spotAt(spot, camera);
  path.moveTo(fromX, fromY);
  if (camera.scaleY < CURVED_ROW) {
    path.lineTo(toX, toY);
    return;
  }
  const turn = toX - Math.min(28, camera.scaleX * 0.4);
  path.lineTo(turn, fromY);
  if (fromY !== toY) path.bezierCurveTo(turn + 12, fromY, turn + 4, toY, Math.min(toX, turn + 20), toY);
  path.lineTo(toX, toY);
}

function paintSpots(canvas, seen, camera, palette) {
  const batches = new Map();
  for (const spot of seen) {
    const key = `${spot.shape} ${spot.tone} ${spot.isFaint}`;
    if (!batches.has(key)) batches.set(key, []);
    batches.get(key).push(spot);
  }
  for (const spots of batches.values()) paintBatch(canvas, spots, camera, palette);
  const best = seen.find((spot) => spot.isBest);
  if (best) paintBest(canvas, best, camera, palette);
}

function paintBatch(canvas, spots, camera, palette) {
  const { shape, tone, isFaint } = spots[0];
  const path = new Path2D();
  for (const spot of spots) {
    const radius = radiusOf(spot, camera);
    const [x, y] = spotAt(spot, camera);
    if (radius < DOTS_BELOW) path.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    else outline(path, shape, x, y, radius);
  }
  canvas.globalAlpha = isFaint ? 0.45 : 1;
  if (shape === "ring" || shape === "cross") {
    canvas.fillStyle = palette.panel;
    if (shape === "ring") canvas.fill(path);
    canvas.lineWidth = 1.4;
    canvas.strokeStyle = palette[tone];
    canvas.stroke(path);
  } else {
    canvas.fillStyle = palette[tone];
    canvas.fill(path);
  }
  canvas.globalAlpha = 1;
}

function paintBest(canvas, spot, camera, palette) {
  const [x, y] = spotAt(spot, camera);
  const path = new Path2D();
  path.arc(x, y, radiusOf(spot, camera) + 3, 0, 2 * Math.PI);
  canvas.lineWidth = 2;
  canvas.strokeStyle = palette.best;
  canvas.stroke(path);
}

function paintLabels(canvas, seen, camera, palette, end) {
  const hasSecond = camera.scaleY >= SECOND_ROW;
  canvas.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  canvas.textBaseline = "alphabetic";
  canvas.direction = "ltr";
  for (const spot of seen) {
    const [x, y] = spotAt(spot, camera);
    const left = x + radiusOf(spot, camera) + 6;
    const beside = Math.round((end - left) / 8) * 8 - 8; // whole steps, so that few widths are measured
    const room = spot.isLast ? Math.min(LAST_LABEL, Math.max(beside, LEAST_LABEL)) : camera.scaleX - (spot.isLeaf ? 24 : 48);
    canvas.globalAlpha = spot.isFaint ? 0.6 : 1;
    canvas.fillStyle = palette.text;
    const said = hasSecond || !spot.node.best ? spot.title : `${spot.told} ${spot.title}`;
    canvas.fillText(fitted(canvas, said, room), left, spot.isLeaf && !hasSecond ? y + 4 : y - 4);
    if (hasSecond) {
      canvas.fillStyle = palette["text-quiet"];
      canvas.fillText(fitted(canvas, spot.told, room), left, y + 13);
    }
  }
  canvas.globalAlpha = 1;
}

const widths = new Map();
const MOST_WIDTHS = 6000;

/** Returns the text, its end left out where there is no room for it. Measuring is slow, so it is kept. */
function fitted(canvas, text, room) {
  const key = `${Math.round(room)} ${text}`;
  let fit = widths.get(key);
  if (fit === undefined) {
    if (widths.size > MOST_WIDTHS) widths.clear();
    fit = cut(canvas, text, room);
    widths.set(key, fit);
  }
  return fit;
}

function cut(canvas, text, room) {
  const width = canvas.measureText(text).width;
  if (width <= room) return text;
  const kept = Math.max(1, Math.floor((text.length * room) / width) - 1);
  return `${text.slice(0, kept).trimEnd()}…`;
}
