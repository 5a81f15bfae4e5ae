// What fingers, mouse and keyboard do to a drawing of a tree.

const CLICK_SLACK = 5; // px that a click may move
const WHEEL_STEP = 0.0016;
const KEY_STEP = 60;
const KEY_ZOOM = 1.3;

/**
 * Listens on a canvas.
 *
 * @param {HTMLElement} canvas
 * @param {Object} acts `pan(dx, dy)`, `zoom(factor, x, y)`, `point(x, y)` (null, null: nowhere), `click(x, y)`, `key(name)` for
 *   `left`, `right`, `up`, `down`, `first`, `best`, `open`, `fit`, `leave`; each returns nothing.
 * @param {AbortSignal} signal ends it.
 */
export function listen(canvas, acts, signal) {
  const fingers = new Map();
  let travelled = 0;
  let box = canvas.getBoundingClientRect();
  const placeOf = (event) => [event.clientX - box.left, event.clientY - box.top];
  const on = (name, heard, options = {}) => canvas.addEventListener(name, heard, { signal, ...options });

  on("pointerdown", (event) => {
    if (event.button > 0) return;
    canvas.setPointerCapture(event.pointerId);
    box = canvas.getBoundingClientRect(); // and not again while dragging: asking makes the browser lay out the page
    fingers.set(event.pointerId, placeOf(event));
    if (fingers.size === 1) travelled = 0;
  });
  on("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) box = canvas.getBoundingClientRect();
    const place = placeOf(event);
    if (!before) {
      acts.point(...place);
      return;
    }
    travelled += Math.abs(place[0] - before[0]) + Math.abs(place[1] - before[1]);
    if (fingers.size === 2) pinch(event.pointerId, place);
    else if (travelled > CLICK_SLACK) acts.pan(place[0] - before[0], place[1] - before[1]);
    fingers.set(event.pointerId, place);
  });
  on("pointerup", (event) => {
    const isLast = fingers.delete(event.pointerId) && fingers.size === 0;
    if (isLast && travelled <= CLICK_SLACK) acts.click(...placeOf(event));
  });
  on("pointercancel", (event) => fingers.delete(event.pointerId));
  on("pointerleave", () => acts.point(null, null));
  on("wheel", (event) => {
    event.preventDefault();
    box = canvas.getBoundingClientRect();
    const lines = event.deltaMode === 1 ? 16 : 1;
    acts.zoom(Math.exp(-event.deltaY * lines * WHEEL_STEP), ...placeOf(event));
  }, { passive: false });
  on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = keyed(event, acts);
    if (!act) return;
    event.preventDefault();
    act();
  });

  function pinch(moving, place) {
    const [other] = [...fingers].filter(([id]) => id !== moving).map(([, at]) => at);
    const before = fingers.get(moving);
    const factor = apart(place, other) / Math.max(1, apart(before, other));
    acts.zoom(factor, (place[0] + other[0]) / 2, (place[1] + other[1]) / 2);
    acts.pan((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
  }
}

function keyed(event, acts) {
  const arrows = { ArrowLeft: [1, 0, "left"], ArrowRight: [-1, 0, "right"], ArrowUp: [0, 1, "up"], ArrowDown: [0, -1, "down"] };
  const arrow = arrows[event.key];
  if (arrow && event.shiftKey) return () => acts.pan(arrow[0] * KEY_STEP, arrow[1] * KEY_STEP);
  if (arrow) return () => acts.key(arrow[2]);
  const named = { Home: "first", End: "best", Enter: "open", Escape: "leave", 0: "fit" }[event.key];
  if (named) return () => acts.key(named);
  if (event.key === "+" || event.key === "=") return () => acts.zoom(KEY_ZOOM, null, null);
  if (event.key === "-") return () => acts.zoom(1 / KEY_ZOOM, null, null);
  return null;
}

function apart(one, other) {
  return Math.hypot(one[0] - other[0], one[1] - other[1]);
}
