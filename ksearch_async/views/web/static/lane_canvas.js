// Draws lanes of jobs on a canvas, and says which job is where. Draws what is in view and nothing else.

import { legibleLine } from "./format.js";
import { firstVisible, ticksOf } from "./lane_layout.js";

const LABEL_HEIGHT = 17; // px above each lane
const AXIS_HEIGHT = 22;
const GAP = 7;
const TALLEST = 14; // px of a row
const SHORTEST = 5;
const ROOM = 620; // px in which all rows should find room
const THINNEST = 1.2; // px: a shorter job is drawn so wide

/** Return where rows stand: `{height, lanes: [{lane, labelY, rows: [y…]}], rowHeight}`. */
export function placed(lanes) {
  const rowCount = lanes.reduce((sum, lane) => sum + lane.rows.length, 0);
  const free = ROOM - lanes.length * (LABEL_HEIGHT + GAP);
  const rowHeight = Math.max(SHORTEST, Math.min(TALLEST, Math.floor(free / Math.max(1, rowCount))));
  let y = AXIS_HEIGHT;
  const places = lanes.map((lane) => {
    const labelY = y + LABEL_HEIGHT - 5;
    y += LABEL_HEIGHT;
    const rows = lane.rows.map((_, at) => y + at * rowHeight);
    y += lane.rows.length * rowHeight + GAP;
    return { lane, labelY, rows };
  });
  return { height: y, lanes: places, rowHeight };
}

/** Draw; `view` is `{from, to}` in seconds, `paint` the theme's colours, `chosen` a job's id or empty. */
export function draw(canvas, places, view, paint, { chosen = "", timeText, nowS }) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  fit(canvas, width, places.height, ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, places.height);
  const scale = width / Math.max(view.to - view.from, 1e-6);
  const xOf = (seconds) => (seconds - view.from) * scale;
  drawAxis(pen, places, view, paint, width, xOf, timeText);
  const hatch = hatchOf(pen, paint.waiting);
  for (const place of places.lanes) {
    pen.fillStyle = paint.text;
    pen.fillText(shortened(pen, labelOf(place.lane), width - 8), 4, place.labelY);
    place.lane.rows.forEach((row, at) => {
      drawRow(pen, row, place.rows[at], places.rowHeight, view, xOf, paint, hatch, chosen);
    });
  }
  if (nowS != null && nowS >= view.from && nowS <= view.to) {
    pen.fillStyle = paint.now;
    pen.fillRect(xOf(nowS), AXIS_HEIGHT - 4, 1, places.height);
  }
}

/** Return the span at a place of the canvas, or null. */
export function spanAt(places, view, width, x, y) {
  const second = view.from + (x / width) * (view.to - view.from);
  const slack = (3 / width) * (view.to - view.from);
  for (const place of places.lanes) {
    for (let at = 0; at < place.rows.length; at += 1) {
      if (y < place.rows[at] || y >= place.rows[at] + places.rowHeight) continue;
      const row = place.lane.rows[at];
      const first = firstVisible(row, second - slack);
      const found = row[first];
      return found && found.start <= second + slack ? found : null;
    }
  }
  return null;
}

/** Say whose lane it is. */
export function labelOf(lane) {
  const said = [lane.role, legibleLine(lane.unit, 60), legibleLine(lane.worker, 80)].filter(Boolean).join(" · ");
  return lane.underWay ? `${lane.role} · asked for, not answered yet` : said;
}

function shortened(pen, text, width) {
  const wide = pen.measureText(text).width;
  return wide <= width ? text : `${text.slice(0, Math.max(8, Math.floor((text.length * width) / wide) - 2))}…`;
}

function drawAxis(pen, places, view, paint, width, xOf, timeText) {
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "alphabetic";
  for (const tick of ticksOf(view.from, view.to, Math.max(2, Math.floor(width / 90)))) {
    const x = xOf(tick);
    pen.fillStyle = paint.grid;
    pen.fillRect(x, AXIS_HEIGHT - 6, 1, places.height);
    pen.fillStyle = paint.muted;
    if (x < width - 56) pen.fillText(timeText(tick), x + 3, 11);
  }
}

function drawRow(pen, row, y, height, view, xOf, paint, hatch, chosen) {
  const tall = Math.max(2, height - (height > 5 ? 2 : 1));
  let drawnTo = -Infinity;
  for (let at = firstVisible(row, view.from); at < row.length && row[at].start <= view.to; at += 1) {
    const span = row[at];
    const [left, middle, right] = [xOf(span.start), xOf(span.busyFrom), xOf(span.end)];
    if (right <= drawnTo && span.job.job_id !== chosen) continue; // under a pixel that is drawn already
    if (middle - left > 0.5) {
      pen.fillStyle = hatch;
      pen.fillRect(left, y, middle - left, tall);
      pen.fillStyle = paint.waiting;
      pen.fillRect(left, y + tall - 1, middle - left, 1);
    }
    const wide = Math.max(right - middle, span.job.ended_s == null ? 0 : THINNEST);
    if (wide > 0) {
      pen.fillStyle = paint.of(span.job);
      pen.fillRect(middle, y, Math.max(wide - (wide > 4 ? 1 : 0), THINNEST), tall);
    }
    if (span.job.job_id === chosen) {
      pen.strokeStyle = paint.text;
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, y - 1, Math.max(right - left, THINNEST) + 2, tall + 2);
    }
    drawnTo = Math.max(drawnTo, Math.floor(right) + 0.5);
  }
}

let hatched = { colour: "", pattern: null };

function hatchOf(pen, colour) {
  if (hatched.colour === colour) return hatched.pattern;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.strokeStyle = colour;
  brush.globalAlpha = 0.75;
  brush.beginPath();
  for (const shift of [-6, 0, 6]) {
    brush.moveTo(shift, 6);
    brush.lineTo(shift + 6, 0);
  }
  brush.stroke();
  hatched = { colour, pattern: pen.createPattern(tile, "repeat") };
  return hatched.pattern;
}

function fit(canvas, width, height, ratio) {
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== tall) canvas.height = tall;
  const css = `${height}px`;
  if (canvas.style.height !== css) canvas.style.height = css;
}
