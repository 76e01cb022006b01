// The examined mask: draws what Python found (right, leaking and missing cells, as bands) at any scale, in three panes
// that always show the same stretch. It holds no rule of its own.
const find = (selector) => element.querySelector(selector);
const panes = [...element.querySelectorAll("canvas")].map((canvas) => ({ canvas, side: canvas.dataset.side, pen: canvas.getContext("2d") }));
const main = panes[0].canvas, hoverLine = find(".hover"), whereLine = find(".where");
const scaleButtons = [...element.querySelectorAll(".views button")];
const SCALES = { block: 96, token: 14 };
const NOTHING = { queries: 0, keys: 0, segments: [], right: [], leak: [], missing: [], step: 1, words: {} };
let mask = NOTHING, near = null, strip = { count: 0 };
let view = { q: 0, k: 0, rows: 1, cols: 1 }, cell = null, locked = null, pending = null, frame = 0, version = 0;

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const filled = (text, facts) => text.replace(/\{(\w+)\}/g, (_, name) => facts[name]);
const word = (key) => mask.words["doctor." + key] || "";

function read() {
  const before = mask;
  mask = JSON.parse(props.value);
  near = null;
  for (const side of ["right", "leak", "missing"]) mask[side] ||= [];
  const captions = element.querySelectorAll("figcaption b"), axes = element.querySelectorAll(".axis");
  ["difference", "expected", "effective"].forEach((name, index) => { captions[index].textContent = word(name); });
  axes[0].textContent = word("query");
  axes[1].textContent = word("key");
  find(".title").textContent = word("map");
  find(".empty").textContent = mask.empty;
  for (const button of scaleButtons) button.textContent = word(button.dataset.scale);
  element.querySelectorAll(".legend span").forEach((box, index) => { box.textContent = word("legend." + ["right", "leak", "missing"][index]); });
  panes.forEach((pane) => pane.canvas.setAttribute("aria-label", word(pane.side) + ". " + mask.label));
  showRows();
  // Another language draws the same cells: the stretch that is looked at stays.
  if (before.queries !== mask.queries || before.keys !== mask.keys || !same(before.leak, mask.leak) || !same(before.right, mask.right)) {
    cell = locked = null;
    view = { q: 0, k: 0, rows: Math.max(1, mask.queries), cols: Math.max(1, mask.keys) };
  }
  if (pending) { go(pending.query, pending.key); pending = null; }
  show();
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function showRows() {
  const box = find(".rows");
  box.hidden = !(mask.rows > 1);
  box.querySelector("span").textContent = filled(word("row"), { row: mask.row, rows: mask.rows });
  box.querySelectorAll("button").forEach((button) => button.setAttribute("aria-label", word(button.dataset.turn < 0 ? "previous" : "next")));
}

function show() {
  const whole = view.rows >= mask.queries && view.cols >= mask.keys;
  const scale = whole ? "overview" : view.rows > 2 * SCALES.token ? "block" : "token";
  for (const button of scaleButtons) button.setAttribute("aria-pressed", String(button.dataset.scale === scale));
  for (const pane of panes) pane.canvas.style.touchAction = whole ? "pan-y" : "none";
  whereLine.textContent = mask.queries ? filled(word("view"), {
    q0: view.q, q1: Math.min(mask.queries, view.q + view.rows) - 1, queries: mask.queries.toLocaleString("en"),
    k0: view.k, k1: Math.min(mask.keys, view.k + view.cols) - 1, keys: mask.keys.toLocaleString("en") }) : "";
  hoverLine.textContent = describe(cell || locked);
  askNear();
  if (!frame) frame = requestAnimationFrame(draw);
}

// A mask of very many bands comes in blocks; the stretch that is looked at closely is asked for.
function askNear() {
  const span = Math.max(view.rows, view.cols);
  if (mask.step === 1 || span > 256) return;
  const covers = near && near.queries[0] <= view.q && view.q + view.rows <= near.queries[1] + 1e-9 && near.keys[0] <= view.k && view.k + view.cols <= near.keys[1] + 1e-9;
  const edge = (from, size, all) => [Math.max(0, from - 64), Math.min(all, from + size + 64)];
  const wanted = [...edge(view.q, view.rows, mask.queries), ...edge(view.k, view.cols, mask.keys)];
  if (covers || String(wanted) === askNear.last) return;
  askNear.last = String(wanted);
  trigger("select", { stretch: wanted });
}

function readNear() {
  near = props.near ? JSON.parse(props.near) : null;
  askNear.last = "";
  if (!frame) frame = requestAnimationFrame(draw);
}

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

const cells = () => near && mask.step > 1 && Math.max(view.rows, view.cols) <= 256 ? { sets: near, step: 1 } : { sets: mask, step: mask.step };

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

const segmentAt = (token) => mask.segments.find((part) => part[0] <= token && token < part[1]);
// Queries behind a cache are other tokens than the strip's.
const textOf = (place) => mask.queries !== mask.keys ? "" : strip.texts ? strip.texts[place] : strip.ids ? "id " + strip.ids[place] : "";
const visible = (text) => [...text].map((sign) => {
  const named = { " ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" }[sign];
  if (named) return named;
  return /[\p{Cc}\p{Cf}\u2028\u2029]/u.test(sign) && sign !== "\u200d" ? "U+" + sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") : sign;
}).join("");

const holds = (bands, query, key) => bands.some(([row, rowEnd, from, to, slides, grows]) =>
  row <= query && query < rowEnd && from + slides * (query - row) <= key && key < to + grows * (query - row));

function describe(point) {
  if (!point || !mask.queries) return "";
  const { sets, step } = cells();
  const named = (token) => {
    const part = mask.queries === mask.keys ? segmentAt(token) : null;
    return part ? filled(word("named"), { name: part[2] }) : mask.segments.length ? word("nobody") : "";
  };
  const facts = { q: point.query, qt: visible(textOf(point.query)), ql: named(point.query), k: point.key, kt: visible(textOf(point.key)), kl: named(point.key) };
  if (step > 1) return filled(word("at"), facts);
  const isLeak = holds(sets.leak, point.query, point.key), isMissing = holds(sets.missing, point.query, point.key);
  const reads = isLeak || holds(sets.right, point.query, point.key);
  const told = filled(word(reads ? "reads" : "reads_not"), facts).replace(/ ‘’/g, "").replace(/ \(\)|（）/g, "");
  return told + (isLeak ? word("is_leak") : isMissing ? word("is_missing") : "");
}

function locate(pane, event) {
  const box = pane.canvas.getBoundingClientRect(), dpr = window.devicePixelRatio || 1, { side, edge, x, y } = shape(pane, dpr);
  const right = (event.clientX - box.left) / box.width * side - edge, down = (event.clientY - box.top) / box.height * side - edge;
  if (!mask.queries || right < 0 || down < 0 || right >= side - edge || down >= side - edge) return null;
  const query = Math.floor(view.q + down / y), key = Math.floor(view.k + right / x);
  return query < mask.queries && key < mask.keys ? { query, key } : null;
}

function zoom(rows, centre) {
  const size = Math.max(mask.queries, mask.keys);
  if (rows >= size) {
    view = { q: 0, k: 0, rows: mask.queries, cols: mask.keys };
  } else {
    const height = Math.min(rows, mask.queries), width = Math.min(rows, mask.keys);
    view = { q: clamp(Math.round(centre.query - height / 2), 0, mask.queries - height), rows: height,
      k: clamp(Math.round(centre.key - width / 2), 0, mask.keys - width), cols: width };
  }
  show();
}

// Where a closer look starts: the locked cell, the first wrong one, or the first of all.
function centre() {
  if (locked) return locked;
  const first = mask.leak[0] || mask.missing[0];
  return first ? { query: first[0] * mask.step, key: first[2] * mask.step } : { query: view.q, key: view.k };
}

function go(query, key) {
  locked = { query: clamp(query, 0, mask.queries - 1), key: clamp(key, 0, mask.keys - 1) };
  cell = null;
  stripTo(locked.query);
  if (mask.queries) zoom(SCALES.token, locked);
}

let drag = null;
for (const pane of panes) {
  pane.canvas.addEventListener("pointermove", (event) => {
    if (drag && drag.pane === pane) return pan(pane, event);
    cell = locate(pane, event);
    show();
  });
  pane.canvas.addEventListener("pointerleave", () => { cell = null; show(); });
  pane.canvas.addEventListener("pointerdown", (event) => {
    drag = { pane, x: event.clientX, y: event.clientY, q: view.q, k: view.k, moved: false };
    pane.canvas.setPointerCapture(event.pointerId);
  });
  pane.canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) {
      const at = locate(pane, event);
      locked = at && locked && at.query === locked.query && at.key === locked.key ? null : at;
      if (locked) stripTo(locked.query);
    }
    drag = null;
    show();
  });
  pane.canvas.addEventListener("dblclick", (event) => { const at = locate(pane, event); if (at) zoom(view.rows > SCALES.block ? SCALES.block : SCALES.token, at); });
  pane.canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey || !mask.queries) return;
    event.preventDefault();
    const at = locate(pane, event) || centre();
    zoom(clamp(Math.round(Math.max(view.rows, view.cols) * (event.deltaY > 0 ? 1.5 : 1 / 1.5)), 4, Math.max(mask.queries, mask.keys)), at);
  }, { passive: false });
}

function pan(pane, event) {
  const right = event.clientX - drag.x, down = event.clientY - drag.y;
  if (Math.hypot(right, down) > 4) drag.moved = true;
  if (!drag.moved) return;
  const dpr = window.devicePixelRatio || 1, { x, y } = shape(pane, dpr);
  view = { ...view, q: clamp(Math.round(drag.q - down * dpr / y), 0, mask.queries - view.rows), k: clamp(Math.round(drag.k - right * dpr / x), 0, mask.keys - view.cols) };
  show();
}

main.addEventListener("keydown", (event) => {
  if (!mask.queries) return;
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (event.key === "+" || event.key === "-") return zoom(clamp(Math.round(Math.max(view.rows, view.cols) * (event.key === "-" ? 2 : 0.5)), 4, Math.max(mask.queries, mask.keys)), locked || centre());
  if (!by) return;
  event.preventDefault();
  const from = locked || { query: view.q, key: view.k };
  locked = { query: clamp(from.query + by[0], 0, mask.queries - 1), key: clamp(from.key + by[1], 0, mask.keys - 1) };
  cell = null;
  const isOut = locked.query < view.q || locked.query >= view.q + view.rows || locked.key < view.k || locked.key >= view.k + view.cols;
  if (isOut) zoom(Math.max(view.rows, view.cols), locked); else show();
  stripTo(locked.query);
});

for (const button of scaleButtons) {
  button.addEventListener("click", () => { if (mask.queries) zoom(SCALES[button.dataset.scale] || Infinity, centre()); });
}
element.querySelectorAll("[data-turn]").forEach((button) => button.addEventListener("click", () => trigger("select", { row: mask.row + Number(button.dataset.turn) })));
document.addEventListener("kev-doctor-go", (event) => {
  if (!element.isConnected) return;
  const { query, key, row } = event.detail;
  if (row === mask.row || !(mask.rows > 1)) return mask.queries ? go(query, key) : stripTo(query);
  pending = { query, key };
  trigger("select", { row });
});
for (const pane of panes) new ResizeObserver(() => { if (!frame) frame = requestAnimationFrame(draw); }).observe(pane.canvas);
new MutationObserver(() => { if (!frame) frame = requestAnimationFrame(draw); }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
