// Three panes of one stretch: the difference, what should be allowed, and what will be.
function palette() {
  const style = getComputedStyle(element), get = (name) => style.getPropertyValue(name).trim();
  const questions = Array.from({ length: 8 }, (_, index) => get("--q" + index));
  return { of: (colour) => colour < 0 ? get("--others") : questions[colour % 8], ink: get("--ink"), soft: get("--soft"), right: get("--right-cell"),
    leak: get("--leak"), missing: get("--missing"), canvas: get("--canvas"), font: style.fontFamily, mono: getComputedStyle(hoverLine).fontFamily };
}

function draw() {
  frame = 0;
  const dpr = window.devicePixelRatio || 1, colours = palette();
  for (const pane of panes) drawPane(pane, dpr, colours);
  main.dataset.version = ++version;
  main.dataset.view = [view.q, view.k, view.rows, view.cols].join(",");
}

const margin = (pane, dpr) => dpr * (pane.canvas !== main ? 8 : showsTexts() ? 92 : 18);
const showsTexts = () => view.rows <= 2 * SCALES.token && view.cols <= 2 * SCALES.token && mask.queries > 0;

function shape(pane, dpr) {
  const side = pane.canvas.width, edge = margin(pane, dpr);
  return { side, edge, x: (side - edge) / view.cols, y: (side - edge) / view.rows };
}

function drawPane(pane, dpr, colours) {
  const width = Math.round(pane.canvas.clientWidth * dpr);
  if (!width) return;
  if (pane.canvas.width !== width) pane.canvas.width = pane.canvas.height = width;
  const pen = pane.pen, { side, edge, x, y } = shape(pane, dpr);
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, side, side);
  if (!mask.queries) return;
  drawBorders(pen, side, edge, x, y, dpr, colours, pane.canvas === main);
  pen.save();
  pen.beginPath();
  pen.rect(edge, edge, side - edge, side - edge);
  pen.clip();
  pen.translate(edge, edge);
  // Places are counted from the corner in sight: far ones would be too large for exact pixels.
  const { sets, step } = cells(), ground = { pen, x: x * step, y: y * step, left: view.k / step, top: view.q / step, step, dpr };
  const byOwner = pane.side !== "difference";
  for (const band of sets.right) paintRight(ground, band, byOwner, colours);
  if (pane.side === "expected") for (const band of sets.missing) paintRight(ground, band, true, colours);
  const markers = [];
  if (pane.side === "difference") for (const band of sets.missing) paintWrong(ground, band, colours.missing, false, markers, colours);
  if (pane.side !== "expected") for (const band of sets.leak) paintWrong(ground, band, colours.leak, true, markers, colours);
  for (const [left, top, colour] of markers.length <= 60 ? markers : []) {
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5 * dpr;
    pen.beginPath();
    pen.arc(left, top, 7 * dpr, 0, 7);
    pen.stroke();
  }
  if (x >= 9 * dpr) grid(ground, colours, x, y);
  const point = cell || locked;
  if (point) crosshair(pen, point, x, y, dpr, colours);
  pen.restore();
  if (pane.canvas === main && showsTexts()) drawTexts(pen, edge, x, y, dpr, colours);
}

// The rows of a band that are in sight.
function stretch(band, ground) {
  const first = Math.floor(view.q / ground.step), last = Math.ceil((view.q + view.rows) / ground.step);
  return [Math.max(band[0], first), Math.min(band[1], last)];
}

function trace(ground, band, from, to) {
  const { pen, x, y, top } = ground, [row, , key, keyEnd, slides, grows] = band;
  const left = (index) => (key + slides * (index - row) - ground.left) * x, right = (index) => (keyEnd + grows * (index - row) - ground.left) * x;
  const down = (index) => (index - top) * y;
  pen.beginPath();
  if (!slides && !grows) {
    pen.rect(left(from), down(from), right(from) - left(from), down(to) - down(from));
  } else if (Math.min(x, y) < 2) {
    // With few pixels a cell the stairs become a line.
    pen.moveTo(left(from), down(from));
    pen.lineTo(right(from), down(from));
    pen.lineTo(right(to), down(to));
    pen.lineTo(left(to), down(to));
    pen.closePath();
  } else {
    for (let index = from; index < to; index++) pen.rect(left(index), down(index), right(index) - left(index), y);
  }
  return [left(from), down(from), right(to - 1), down(to)];
}

function paintRight(ground, band, byOwner, colours) {
  const [from, to] = stretch(band, ground);
  if (from >= to) return;
  const pen = ground.pen;
  if (!byOwner || !mask.segments.length) {
    pen.fillStyle = byOwner ? colours.of(0) : colours.right;
    trace(ground, band, from, to);
    pen.fill();
    return;
  }
  for (const part of mask.segments) {
    const low = Math.max(from, Math.floor(part[0] / ground.step)), high = Math.min(to, Math.ceil(part[1] / ground.step));
    if (low >= high) continue;
    pen.fillStyle = colours.of(part[3]);
    pen.globalAlpha = band[2] * ground.step >= part[0] ? 0.86 : 0.45;
    trace(ground, band, low, high);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

// A wrong cell is never too small to be seen: below a few pixels it has an outline, and where few are wrong, a ring.
function paintWrong(ground, band, colour, isLeak, markers, colours) {
  const [from, to] = stretch(band, ground);
  if (from >= to) return;
  const { pen, dpr } = ground, box = trace(ground, band, from, to);
  const small = Math.min(box[2] - box[0], box[3] - box[1]), large = Math.max(box[2] - box[0], box[3] - box[1]);
  pen.fillStyle = small >= 6 * dpr ? hatch(colour, isLeak, dpr, colours) : colour;
  pen.fill();
  pen.strokeStyle = colour;
  pen.lineJoin = "round";
  pen.lineWidth = (Math.min(ground.x, ground.y) < 3 * dpr ? 2.5 : 1) * dpr;
  if (small < 6 * dpr || large < 80 * dpr) pen.stroke();
  if (large < 8 * dpr) markers.push([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2, colour]);
}

// Leaks are striped, missing cells dotted, so that neither rests on its colour alone.
function hatch(colour, isLeak, dpr, colours) {
  const key = [colour, isLeak, dpr, colours.canvas].join();
  hatch.made ||= new Map();
  if (!hatch.made.has(key)) {
    const tile = document.createElement("canvas"), size = Math.round(6 * dpr), pen = tile.getContext("2d");
    tile.width = tile.height = size;
    pen.fillStyle = isLeak ? colour : colours.canvas;
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = pen.fillStyle = isLeak ? colours.canvas : colour;
    pen.lineWidth = 1.2 * dpr;
    if (isLeak) {
      for (const shift of [-size, 0, size]) {
        pen.beginPath();
        pen.moveTo(shift - 1, size + 1);
        pen.lineTo(shift + size + 1, -1);
        pen.stroke();
      }
    } else {
      pen.fillRect(size / 4, size / 4, size / 2, size / 2);
    }
    hatch.made.set(key, main.getContext("2d").createPattern(tile, "repeat"));
  }
  return hatch.made.get(key);
}

function grid({ pen, dpr }, colours, x, y) {
  pen.strokeStyle = colours.canvas;
  pen.lineWidth = dpr;
  pen.beginPath();
  for (let column = 0; column <= view.cols; column++) { pen.moveTo(column * x, 0); pen.lineTo(column * x, view.rows * y); }
  for (let row = 0; row <= view.rows; row++) { pen.moveTo(0, row * y); pen.lineTo(view.cols * x, row * y); }
  pen.stroke();
}

// The segments along both axes, as coloured bars with their names.
function drawBorders(pen, side, edge, x, y, dpr, colours, isNamed) {
  const bar = 5 * dpr, size = mask.keys === mask.queries ? mask.segments : [];
  pen.font = 11 * dpr + "px " + colours.font;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const [start, end, name, colour] of size) {
    for (const isKey of [true, false]) {
      const unit = isKey ? x : y, first = isKey ? view.k : view.q;
      const from = clamp(edge + (start - first) * unit, edge, side), to = clamp(edge + (end - first) * unit, edge, side);
      if (to <= from) continue;
      pen.fillStyle = colours.of(colour);
      if (isKey) pen.fillRect(from, edge - bar, Math.max(1, to - from - dpr), bar - dpr); else pen.fillRect(edge - bar, from, bar - dpr, Math.max(1, to - from - dpr));
      if (!isNamed || showsTexts() || to - from < 12 * dpr) continue;
      pen.fillStyle = colours.soft;
      const middle = (from + to) / 2, away = (edge - bar) / 2;
      pen.fillText(name, isKey ? middle : away, isKey ? away : middle);
    }
  }
}

function drawTexts(pen, edge, x, y, dpr, colours) {
  pen.font = 12 * dpr + "px " + colours.mono;
  pen.textBaseline = "middle";
  const cut = (text) => text.length > 9 ? text.slice(0, 8) + "…" : text;
  for (let query = Math.ceil(view.q); query < Math.min(mask.queries, view.q + view.rows); query++) {
    pen.textAlign = "right";
    pen.fillStyle = cell && cell.query === query ? colours.ink : colours.soft;
    pen.fillText(cut(visible(textOf(query, true))) + " " + query, edge - 9 * dpr, edge + (query - view.q + 0.5) * y);
  }
  for (let key = Math.ceil(view.k); key < Math.min(mask.keys, view.k + view.cols); key++) {
    pen.save();
    pen.textAlign = "left";
    pen.translate(edge + (key - view.k + 0.5) * x, edge - 9 * dpr);
    pen.rotate(-Math.PI / 2);
    pen.fillStyle = cell && cell.key === key ? colours.ink : colours.soft;
    pen.fillText(key + " " + cut(visible(textOf(key, false))), 0, 0);
    pen.restore();
  }
}

function crosshair(pen, point, x, y, dpr, colours) {
  const left = (point.key - view.k) * x, top = (point.query - view.q) * y;
  pen.fillStyle = pen.strokeStyle = colours.ink;
  pen.globalAlpha = 0.14;
  pen.fillRect(0, top, view.cols * x, Math.max(y, dpr));
  pen.fillRect(left, 0, Math.max(x, dpr), view.rows * y);
  pen.globalAlpha = 1;
  pen.lineWidth = (locked && !cell ? 2 : 1) * dpr;
  const wide = Math.max(x, 5 * dpr), high = Math.max(y, 5 * dpr);
  pen.strokeRect(left + x / 2 - wide / 2, top + y / 2 - high / 2, wide, high);
}
