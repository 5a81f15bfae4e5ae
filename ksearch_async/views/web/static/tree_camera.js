// Which part of a tree is seen, and how large. Pure: values are replaced, never changed.

const MOST_ROW = 46; // px between rows at most when all is shown
const MOST_COLUMN = 260; // px between levels, likewise
const TITLES_FROM = 15; // px between rows from which on room is left for titles at the right
const CLOSEST = 60; // px between rows when zoomed in fully
const MARGIN = 22;
const TITLE_ROOM = 200;

/** Returns the camera that shows all of a layout in a box of `width` and `height` px. */
export function fitted(layout, width, height) {
  const rows = Math.max(1, layout.breadth);
  const scaleY = Math.min(MOST_ROW, (height - 2 * MARGIN) / rows);
  const right = scaleY >= TITLES_FROM ? Math.min(TITLE_ROOM, width / 3) : MARGIN;
  const scaleX = Math.min(MOST_COLUMN, (width - MARGIN - right) / Math.max(1, layout.depth));
  return {
    scaleX,
    scaleY,
    left: MARGIN,
    top: (height - layout.breadth * scaleY) / 2,
  };
}

/** Returns the camera after everything was moved by px. */
export function moved(camera, byX, byY) {
  return { ...camera, left: camera.left + byX, top: camera.top + byY };
}

/** Returns the camera after zooming in by a factor at a point that stays where it is. */
export function zoomed(camera, factor, atX, atY, least) {
  const bounded = Math.min(Math.max(factor, least.scaleY / 2 / camera.scaleY), CLOSEST / camera.scaleY);
  return {
    scaleX: camera.scaleX * bounded,
    scaleY: camera.scaleY * bounded,
    left: atX - (atX - camera.left) * bounded,
    top: atY - (atY - camera.top) * bounded,
  };
}

/** Returns how a picture that was drawn for one camera is to be moved and stretched for another: `{scaleX, scaleY, x, y}`. */
export function between(drawn, wanted) {
  const scaleX = wanted.scaleX / drawn.scaleX;
  const scaleY = wanted.scaleY / drawn.scaleY;
  return { scaleX, scaleY, x: wanted.left - drawn.left * scaleX, y: wanted.top - drawn.top * scaleY };
}
