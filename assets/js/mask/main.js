// The mask panel: views, zoom, the scrubber over the steps, hover and lock, keyboard, export.
const find = (selector) => element.querySelector(selector), findAll = (selector) => [...element.querySelectorAll(selector)];
const canvas = find("canvas"), hoverLine = find(".hover"), stepLine = find(".step"), scrubber = find(".scrub input");
const pen = canvas.getContext("2d");
let view = "story", paint = "question", cell = null, isLocked = false, frame = 0, version = 0;
let chosen = null; // the step that the scrubber stands on; null: the newest
let lens = null; // what is zoomed to, in cells; null: everything

function read() {
  story = props.value ? JSON.parse(props.value) : BLANK;
  leaks = story.leaks || [];
  texts = JSON.parse(props.texts || "[]").map((text) => text.split("\x7f"));
  if (!story.size) { cell = null; isLocked = false; chosen = null; lens = null; }
  if (cell && view === "story" && Math.max(cell.row, cell.key) >= story.size) cell = null;
  write();
}

// All words and the state of the controls; they change with the language too.
function write() {
  const say = kev.say;
  find(".title").textContent = say("mask.title");
  find(".empty").textContent = story.size ? "" : say("mask.empty");
  for (const button of findAll("[data-view]")) button.textContent = say("mask." + button.dataset.view);
  for (const button of findAll("[data-paint]")) button.textContent = say("mask.by_" + button.dataset.paint);
  for (const button of findAll("[data-do]")) {
    button.title = say("mask." + button.dataset.do);
    button.setAttribute("aria-label", button.title);
    button.disabled = !story.size || (button.dataset.do === "token" && !cell);
  }
  const segments = story.segments.length;
  canvas.setAttribute("aria-label", story.size
    ? say("mask.label", { segments, tokens: story.size, allowed: story.allowed }) : say("mask.empty"));
  scrubber.max = Math.max(0, numSteps() - 1);
  scrubber.disabled = numSteps() < 2;
  scrubber.value = step();
  scrubber.setAttribute("aria-label", say("mask.scrub"));
  stepLine.textContent = numSteps() ? say("mask.step_of", { index: step() + 1, total: numSteps() }) : "";
  hoverLine.textContent = describe();
  find(".legend").replaceChildren(...(paint === "adapter" ? legend() : []).map(([colour, name]) => {
    const swatch = kev.make("i", { style: "background: var(" + variable(colour) + ")" });
    return kev.make("span", {}, swatch, name);
  }));
  fillTable();
  redraw();
}

const step = () => chosen === null ? Math.max(0, numSteps() - 1) : Math.min(chosen, numSteps() - 1);
const variable = (colour) => ({ "-1": "--shared", "-2": "--others" })[colour] || "--q" + colour % 8;

function legend() {
  const seen = new Map();
  for (const part of story.segments) {
    const [colour, name] = paint === "adapter" ? [part.voice, part.adapter ?? kev.say("base")] : [part.colour, part.name];
    if (!seen.has(name)) seen.set(name, [colour, name]);
  }
  return [...seen.values()];
}

function fillTable() {
  const cells = (tag, texts) => kev.make("tr", {}, ...texts.map((text) => kev.make(tag, {}, String(text))));
  find("caption").textContent = kev.say("mask.title");
  find("thead").replaceChildren(cells("th", ["segment", "adapter", "prompt", "generated", "reads_what"].map((key) => kev.say("mask." + key))));
  find("tbody").replaceChildren(...story.segments.map((part, index) => {
    const above = keyStretches(index, 0).map(([member]) => story.segments[member].name);
    return cells("td", [part.name, part.adapter ?? kev.say("base"), part.prompt, part.end - part.start - part.prompt, above.join(", ")]);
  }));
}

function redraw() {
  if (!frame) frame = requestAnimationFrame(draw);
}

// What is looked at, in cells: the lens where there is one, else everything.
function portOf(side, dpr, layout) {
  const columns = layout ? layout.columns : story.size, rows = layout ? layout.rows : story.size;
  const whole = { left: 0, top: 0, across: columns || 1, down: layout ? Math.max(rows, side / (40 * dpr)) : rows || 1 };
  return { side, ...whole, ...lens };
}

function shapesOf(side, dpr, colours) {
  const layout = view === "step" ? stepLayout(step()) : null;
  if (!story.size || (layout && !layout.rows)) return ghostShapes(side, dpr, colours);
  const port = portOf(side, dpr, layout);
  const inside = (at) => at >= 0 && at < story.size;
  const rowText = (row) => {
    if (!layout) return inside(row) ? storyToken(row).text : null;
    const chunk = layout.chunks.find((one) => one.row <= row && row < one.row + one.count);
    return chunk && chunk.segment >= 0 ? stepToken(chunk, chunk.start + row - chunk.row).text : null;
  };
  const keyText = (key) => {
    if (!layout) return inside(key) ? storyToken(key).text : null;
    const chunk = layout.chunks.find((one) => one.column <= key && key < one.column + one.keys);
    return chunk && chunk.segment >= 0 ? stepToken(chunk, key - chunk.column).text : null;
  };
  return [
    ...(layout ? stepShapes(layout, port, dpr, colours) : storyShapes(port, dpr, colours, doneAfter(step()))),
    ...crosshairShapes(cell, port, dpr, colours, isLocked), ...tokenShapes(port, dpr, colours, rowText, keyText),
  ];
}

function draw() {
  frame = 0;
  const width = canvas.clientWidth;
  if (!width) return;
  const dpr = window.devicePixelRatio || 1, side = Math.round(width * dpr), colours = palette();
  if (canvas.width !== side) canvas.width = side;
  if (canvas.height !== side) canvas.height = side;
  pen.clearRect(0, 0, side, side);
  paintCanvas(pen, shapesOf(side, dpr, colours), dpr, colours.font);
  find(".axes").textContent = view === "story" && !lens ? kev.say("mask.axes") : "";
  canvas.dataset.version = ++version;
  canvas.dataset.tokens = story.size;
}

function describe() {
  if (!cell || !story.size) return "";
  if (view === "story") {
    return sentence(storyReads(cell.row, cell.key), storyToken(cell.row), storyToken(cell.key), isLeak(cell.row, cell.key));
  }
  const found = stepCell(stepLayout(step()), cell.row, cell.key);
  if (!found) return "";
  const query = stepToken(found.query, found.at), key = stepToken(found.owner, found.of);
  return query && key ? sentence(found.reads, query, key, false) : kev.say("mask.others");
}

function sentence(reads, query, key, leaks) {
  const facts = { q: query.at, qt: query.text, ql: query.name, k: key.at, kt: key.text, kl: key.name };
  return kev.say(leaks ? "mask.leaks" : reads ? "mask.reads" : "mask.may_not", facts);
}

function limits() {
  const layout = view === "step" ? stepLayout(step()) : null;
  return layout ? { rows: layout.rows, columns: layout.columns, layout } : { rows: story.size, columns: story.size, layout };
}

function locate(event) {
  const box = canvas.getBoundingClientRect(), { rows, columns, layout } = limits();
  const right = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
  if (!rows || right < 0 || right >= 1 || down < 0 || down >= 1) return null;
  const port = portOf(canvas.width, window.devicePixelRatio || 1, layout);
  const row = Math.floor(port.top + down * port.down), key = Math.floor(port.left + right * port.across);
  return row >= 0 && row < rows && key >= 0 && key < columns ? { row, key } : null;
}

function point(next) {
  cell = next;
  find("[data-do=token]").disabled = !cell;
  hoverLine.textContent = describe();
  redraw();
}

// A locked cell stays while the pointer leaves; the sentence about its whole row comes from the rule itself.
function lock(next) {
  isLocked = Boolean(next);
  point(next);
  trigger("click", { row: next && view === "story" ? next.row : -1 });
}

function zoom(factor, at) {
  const { rows, columns, layout } = limits();
  if (!rows) return;
  const port = portOf(canvas.width, window.devicePixelRatio || 1, layout), full = { ...port };
  lens = null;
  Object.assign(full, portOf(canvas.width, window.devicePixelRatio || 1, layout));
  const least = Math.min(8, full.across);
  const across = Math.max(least, Math.min(full.across, port.across * factor));
  const down = Math.max(Math.min(8, full.down), Math.min(full.down, port.down * factor));
  if (across >= full.across && down >= full.down) return redraw();
  const fx = (at.key + 0.5 - port.left) / port.across, fy = (at.row + 0.5 - port.top) / port.down;
  const keep = (value, most) => Math.max(0, Math.min(most, value));
  lens = { across, down, left: keep(at.key + 0.5 - fx * across, full.across - across),
    top: keep(at.row + 0.5 - fy * down, full.down - down) };
  redraw();
}

function middle() {
  const port = portOf(canvas.width, window.devicePixelRatio || 1, limits().layout);
  return cell || { row: port.top + port.down / 2, key: port.left + port.across / 2 };
}

function zoomToToken() {
  const span = Math.max(8, Math.floor(canvas.clientWidth / (TEXT_CELL + 4))), { rows, columns } = limits();
  const keep = (value, most) => Math.max(0, Math.min(Math.max(0, most - span), value - span / 2));
  lens = { across: Math.min(span, columns), down: span, left: keep(cell.key, columns), top: keep(cell.row, rows) };
  redraw();
}

function pan(dx, dy) {
  if (!lens) return;
  const { rows, columns } = limits();
  const keep = (value, most) => Math.max(0, Math.min(Math.max(0, most), value));
  lens = { ...lens, left: keep(lens.left + dx, columns - lens.across), top: keep(lens.top + dy, rows - lens.down) };
  redraw();
}

function choose(index) {
  chosen = index >= numSteps() - 1 ? null : Math.max(0, index);
  if (view === "step") { lens = null; cell = null; isLocked = false; }
  write();
}

function move(event) {
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const { rows, columns } = limits(), far = event.shiftKey ? 16 : 1;
  if (!by || !rows) return false;
  const inside = (value, most) => Math.max(0, Math.min(most - 1, value));
  const from = cell || { row: 0, key: 0 };
  point({ row: inside(from.row + by[0] * far, rows), key: inside(from.key + by[1] * far, columns) });
  if (lens) {
    const beyond = (at, left, span) => at < left ? at - left : at >= left + span ? at - left - span + 1 : 0;
    pan(beyond(cell.key, lens.left, lens.across), beyond(cell.row, lens.top, lens.down));
  }
  return true;
}

const KEYS = {
  "+": () => zoom(0.5, middle()), "=": () => zoom(0.5, middle()), "-": () => zoom(2, middle()),
  0: () => { lens = null; redraw(); }, PageUp: () => choose(step() - 1), PageDown: () => choose(step() + 1),
  Enter: () => { if (cell) lock(isLocked ? null : cell); }, " ": () => { if (cell) lock(isLocked ? null : cell); },
};

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && (isLocked || cell)) lock(null);
  else if (!move(event) && !KEYS[event.key]) return;
  else if (KEYS[event.key]) KEYS[event.key]();
  event.preventDefault();
  event.stopPropagation();
}

function save(name, blob) {
  const link = kev.make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The picture as it stands, and the legend under it.
function picture() {
  const side = 1000, colours = palette(), shapes = shapesOf(side, 1, colours), entries = legend();
  let x = 12, y = side + 24;
  for (const [colour, name] of entries) {
    const wide = 26 + 8 * name.length;
    if (x + wide > side) { x = 12; y += 22; }
    shapes.push({ kind: "area", points: [[x, y - 10], [x + 11, y - 10], [x + 11, y + 1], [x, y + 1]], fill: colours.of(colour), alpha: 0.86 });
    shapes.push({ kind: "text", at: [x + 17, y], text: name, fill: colours.ink, align: "start", size: 13 });
    x += wide;
  }
  const told = [canvas.getAttribute("aria-label"), stepLine.textContent, kev.say("mask.axes")].join(" · ");
  shapes.push({ kind: "text", at: [12, y + 24], text: told, fill: colours.soft, align: "start", size: 13 });
  return { shapes, width: side, height: y + 38, colours };
}

const DO = {
  nearer: () => zoom(0.5, middle()), farther: () => zoom(2, middle()), token: zoomToToken,
  whole: () => { lens = null; redraw(); },
  svg: () => {
    const { shapes, width, height, colours } = picture();
    save("mask.svg", new Blob([svgOf(shapes, width, height, colours)], { type: "image/svg+xml" }));
  },
  png: () => {
    const { shapes, width, height, colours } = picture(), sheet = document.createElement("canvas"), ink = sheet.getContext("2d");
    [sheet.width, sheet.height] = [width * 2, height * 2];
    ink.scale(2, 2);
    ink.fillStyle = colours.panel;
    ink.fillRect(0, 0, width, height);
    paintCanvas(ink, shapes, 1, colours.font);
    sheet.toBlob((blob) => save("mask.png", blob));
  },
};

let grip = null;
canvas.addEventListener("pointermove", (event) => {
  if (grip && lens) {
    const port = portOf(canvas.width, window.devicePixelRatio || 1, limits().layout);
    const box = canvas.getBoundingClientRect();
    pan((grip.x - event.clientX) / box.width * port.across, (grip.y - event.clientY) / box.height * port.down);
    grip = { ...grip, x: event.clientX, y: event.clientY, isDrag: true };
  } else if (!isLocked) point(locate(event));
});
canvas.addEventListener("pointerleave", () => { grip = null; if (!isLocked) point(null); });
canvas.addEventListener("pointerdown", (event) => { grip = { x: event.clientX, y: event.clientY, isDrag: false }; });
canvas.addEventListener("pointerup", (event) => {
  const isDrag = grip && grip.isDrag, next = locate(event);
  grip = null;
  if (!isDrag) lock(isLocked && cell && next && next.row === cell.row && next.key === cell.key ? null : next);
});
canvas.addEventListener("dblclick", (event) => { const at = locate(event); if (at) zoom(0.35, at); });
canvas.addEventListener("wheel", (event) => {
  // A pinch arrives as a wheel with Ctrl; a plain wheel scrolls the page.
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  const at = locate(event);
  if (at) zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
}, { passive: false });
canvas.addEventListener("keydown", press);
scrubber.addEventListener("input", () => choose(Number(scrubber.value)));
for (const button of findAll("[data-do]")) button.addEventListener("click", () => DO[button.dataset.do]());
for (const button of findAll("[data-view], [data-paint]")) {
  button.addEventListener("click", () => {
    if (button.dataset.view) { view = button.dataset.view; lens = null; lock(null); } else paint = button.dataset.paint;
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    write();
  });
}
new ResizeObserver(redraw).observe(canvas);
new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
// Another story in the same picture, and what its cells are.
canvas.kev = {
  show(value, joined = "[]") { props.value = value; props.texts = joined; read(); draw(); },
  reads: storyReads,
  step: (index) => {
    const layout = stepLayout(index);
    return { ...layout, reads: (row, key) => { const found = stepCell(layout, row, key); return Boolean(found && found.reads); } };
  },
  draw,
};
kev.onLanguage(write);
watch(["value", "texts"], read);
read();
