// Step curves with bands, as SVG that follows its box's width. Colours are classes (`tone-0` …): themes set them.

import { fill, svg } from "./dom.js";

const TONES = 6;
const MARGIN = { top: 12, right: 14, bottom: 38, left: 52 };
const LABEL_WIDTH = 62; // px that a number at the axis may take

/**
 * Draw into a box, and again whenever its width changes; returns how to stop.
 *
 * `spec`: `{lines: [{points: [[x, y]…], tone, label}], bands: [{points: [{x, low, high}…], tone}], guides: [{y, label}],
 * xTitle, yTitle, xText, yText, xWhole, yTop, height, label}`. A line's points hold until the next one.
 */
export function plot(box, spec) {
  let width = 0;
  const draw = () => {
    const now = Math.floor(box.clientWidth);
    if (now === width || now < 40) return;
    width = now;
    fill(box, picture(spec, width));
  };
  const watcher = new ResizeObserver(draw);
  watcher.observe(box);
  draw();
  return () => watcher.disconnect();
}

/** Return the class of the `place`-th colour. */
export function toneOf(place) {
  return `tone-${place % TONES}`;
}

/** Return round numbers between two others, about `count` of them; whole ones only, if that is asked for. */
export function roundSteps(low, high, count, { whole = false } = {}) {
  const span = high - low || 1;
  const rough = span / Math.max(1, count);
  const decade = 10 ** Math.floor(Math.log10(rough));
  const parts = whole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const found = parts.map((each) => each * decade).find((each) => each >= rough * 0.999);
  const step = whole ? Math.max(1, found) : found;
  const steps = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-6; at += 1)
    steps.push(Number((at * step).toPrecision(10)));
  return steps;
}

function picture(spec, width) {
  const height = spec.height ?? 260;
  const scale = scaleOf(spec, width, height);
  const root = svg("svg.plot", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": spec.label,
  });
  root.append(axes(spec, scale, width, height));
  for (const band of spec.bands ?? [])
    root.append(svg(`path.plot-band.${toneOf(band.tone)}`, { d: bandPath(band.points, scale) }));
  for (const guide of spec.guides ?? []) root.append(guideLine(guide, scale, width));
  for (const line of spec.lines) {
    const path = svg(`path.plot-line.${toneOf(line.tone)}${line.faint ? ".faint" : ""}`, {
      d: stepPath(line.points, scale),
    });
    path.append(svg("title", {}, line.label));
    root.append(path);
    if (line.points.length === 1)
      root.append(
        svg(`circle.plot-dot.${toneOf(line.tone)}`, {
          cx: scale.x(line.points[0][0]),
          cy: scale.y(line.points[0][1]),
          r: 3,
        }),
      );
  }
  return root;
}

function scaleOf(spec, width, height) {
  const xs = [...spec.lines.flatMap((line) => line.points.map(([x]) => x))];
  const ys = [
    ...spec.lines.flatMap((line) => line.points.map(([, y]) => y)),
    ...(spec.bands ?? []).flatMap((band) => band.points.map((point) => point.high)),
    ...(spec.guides ?? []).map((guide) => guide.y),
  ];
  const xMost = spec.xTop ?? (largest(xs) || 1);
  const yMost = spec.yTop ?? (largest(ys) || 1) * 1.06;
  const [inner, tall] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  return {
    xMost,
    yMost,
    x: (value) => MARGIN.left + (value / xMost) * inner,
    y: (value) => MARGIN.top + tall - (value / yMost) * tall,
  };
}

function axes(spec, scale, width, height) {
  const group = svg("g.plot-axes", {});
  const [floor, right] = [height - MARGIN.bottom, width - MARGIN.right];
  for (const y of roundSteps(0, scale.yMost, Math.max(2, Math.floor((height - 50) / 40)))) {
    group.append(svg("line.plot-grid", { x1: MARGIN.left, x2: right, y1: scale.y(y), y2: scale.y(y) }));
    group.append(svg("text", { x: MARGIN.left - 7, y: scale.y(y) + 4, "text-anchor": "end" }, spec.yText(y)));
  }
  for (const x of roundSteps(0, scale.xMost, Math.max(2, Math.floor((width - 80) / LABEL_WIDTH)), { whole: spec.xWhole })) {
    group.append(svg("line.plot-grid", { x1: scale.x(x), x2: scale.x(x), y1: MARGIN.top, y2: floor }));
    group.append(svg("text", { x: scale.x(x), y: floor + 16, "text-anchor": "middle" }, spec.xText(x)));
  }
  group.append(svg("line.plot-axis", { x1: MARGIN.left, x2: right, y1: floor, y2: floor }));
  group.append(svg("line.plot-axis", { x1: MARGIN.left, x2: MARGIN.left, y1: MARGIN.top, y2: floor }));
  group.append(
    svg("text.plot-title", { x: (MARGIN.left + right) / 2, y: height - 5, "text-anchor": "middle" }, spec.xTitle),
  );
  const middle = (MARGIN.top + floor) / 2;
  group.append(
    svg(
      "text.plot-title",
      { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` },
      spec.yTitle,
    ),
  );
  return group;
}

function guideLine(guide, scale, width) {
  const group = svg("g.plot-guide", {});
  const y = scale.y(guide.y);
  group.append(svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
  group.append(svg("text", { x: width - MARGIN.right - 4, y: y - 5, "text-anchor": "end" }, guide.label));
  return group;
}

function stepPath(points, scale) {
  let path = "";
  points.forEach(([x, y], at) => {
    path += at === 0 ? `M${scale.x(x)} ${scale.y(y)}` : `H${scale.x(x)}V${scale.y(y)}`;
  });
  return path;
}

function bandPath(points, scale) {
  if (points.length === 0) return "";
  const there = stepPath(
    points.map((point) => [point.x, point.high]),
    scale,
  );
  let back = "";
  for (let at = points.length - 1; at >= 0; at -= 1) {
    const low = scale.y(points[at].low);
    back += at === points.length - 1 ? `L${scale.x(points[at].x)} ${low}` : `V${low}H${scale.x(points[at].x)}`;
  }
  return `${there}${back}Z`;
}

function largest(values) {
  return values.reduce((most, value) => (value > most ? value : most), 0);
}
