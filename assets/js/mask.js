// The mask: draws what Python derived from the executed plan, and tells which cell lies under the pointer. It holds no
// rule of its own: a cell is allowed exactly where one of the bands (story) or the row's keys (step) covers it.
const find = (selector) => element.querySelector(selector);
const canvas = find("canvas"), hoverLine = find(".hover"), stepLine = find(".step"), table = find("table");
const buttons = [...element.querySelectorAll(".views button")];
const pen = canvas.getContext("2d");
let story = { size: 0, segments: [], bands: [], step: null, words: {} };
let texts = [], view = "story", cell = null, frame = 0, version = 0;

function read() {
  story = JSON.parse(props.value);
  texts = JSON.parse(props.texts || "[]");
  const words = story.words;
  find(".title").textContent = words["mask.title"];
  find(".axes").textContent = words["mask.axes"];
  find(".empty").textContent = story.size ? "" : words["mask.empty"];
  for (const button of buttons) button.textContent = words["mask." + button.dataset.view];
  stepLine.textContent = story.step ? words["mask.step_of"].replace("{index}", story.step.index + 1) : "";
  canvas.setAttribute("aria-label", story.label);
  if (!story.size) cell = null;
  fillTable();
  redraw();
}

function fillTable() {
  const rows = [["segment", "prompt", "generated"].map((key) => story.words["mask." + key])];
  for (const part of story.segments) rows.push([part.name, part.prompt, part.end - part.start - part.prompt]);
  table.replaceChildren(...rows.map((cells, index) => {
    const line = document.createElement("tr");
    line.append(...cells.map((text) => {
      const box = document.createElement(index ? "td" : "th");
      box.textContent = text;
      return box;
    }));
    return line;
  }));
}

function redraw() {
  if (!frame) frame = requestAnimationFrame(draw);
}

function palette() {
  const style = getComputedStyle(element);
  const get = (name) => style.getPropertyValue(name).trim();
  const questions = Array.from({ length: 8 }, (_, index) => get("--q" + index));
  return {
    of: (colour) => colour >= 0 ? questions[colour % 8] : get(colour === -1 ? "--shared" : "--others"),
    ink: get("--ink"), soft: get("--soft"), bad: get("--bad"), font: style.fontFamily,
  };
}

function draw() {
  frame = 0;
  const width = canvas.clientWidth;
  if (!width) return;
  const dpr = window.devicePixelRatio || 1, side = Math.round(width * dpr);
  if (canvas.width !== side) canvas.width = side;
  if (canvas.height !== side) canvas.height = side;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, side, side);
  const colours = palette();
  if (view === "story") drawStory(side, dpr, colours); else drawStep(side, dpr, colours);
  canvas.dataset.version = ++version;
  canvas.dataset.tokens = story.size;
}

// Rows [row, end) of a band; with few pixels a cell, the stairs of the diagonal become a line.
function fillBand(band, end, x, y) {
  const [row, , key, keyEnd, grows] = band;
  pen.beginPath();
  pen.moveTo(key * x, row * y);
  if (!grows) {
    pen.rect(key * x, row * y, (keyEnd - key) * x, (end - row) * y);
  } else if (x < 2) {
    pen.lineTo(keyEnd * x, row * y);
    pen.lineTo((keyEnd + end - row) * x, end * y);
  } else {
    for (let index = row; index < end; index++) {
      const right = (keyEnd + index - row) * x;
      pen.lineTo(right, index * y);
      pen.lineTo(right, (index + 1) * y);
    }
  }
  pen.lineTo(key * x, end * y);
  pen.fill();
}

function drawStory(side, dpr, colours) {
  if (!story.size) return drawGhost(side, dpr, colours);
  const unit = side / story.size;
  for (const band of story.bands) {
    const part = segmentAt(band[0]), owner = segmentAt(band[2]);
    const executed = Math.min(band[1], part.start + part.done);
    pen.fillStyle = colours.of(part.colour);
    const strength = part === owner ? 0.86 : 0.4;
    pen.globalAlpha = strength * 0.3;
    fillBand(band, band[1], unit, unit);
    pen.globalAlpha = strength;
    if (executed > band[0]) fillBand(band, executed, unit, unit);
  }
  pen.globalAlpha = 1;
  pen.font = 12 * dpr + "px " + colours.font;
  for (const part of story.segments) {
    const border = part.start + part.prompt;
    if (part.end > border) dash(part.start * unit, border * unit, border * unit, dpr, colours.ink);
    if ((part.end - part.start) * unit > 18 * dpr) {
      pen.fillStyle = colours.soft;
      pen.textAlign = "right";
      pen.fillText(part.name.slice(0, 12), part.end * unit - 3 * dpr, part.start * unit + 13 * dpr);
    }
  }
  if (cell) crosshair(cell.row * unit, cell.key * unit, unit, unit, side, dpr, colours);
}

function dash(left, right, y, dpr, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = dpr;
  pen.setLineDash([3 * dpr, 2.5 * dpr]);
  pen.beginPath();
  pen.moveTo(left, Math.round(y) + 0.5);
  pen.lineTo(right, Math.round(y) + 0.5);
  pen.stroke();
  pen.setLineDash([]);
}

// Before the first run: the shape of things to come, in hairlines.
function drawGhost(side, dpr, colours) {
  pen.strokeStyle = colours.soft;
  pen.globalAlpha = 0.35;
  pen.lineWidth = dpr;
  let from = 0;
  for (const share of [0.22, 0.3, 0.18, 0.3]) {
    const to = from + share;
    pen.beginPath();
    pen.moveTo(from * side + dpr, from * side + dpr);
    pen.lineTo(from * side + dpr, to * side - dpr);
    pen.lineTo(to * side - dpr, to * side - dpr);
    pen.closePath();
    pen.stroke();
    from = to;
  }
  pen.globalAlpha = 1;
}

// The step: one row for each new token, the keys of each sequence beside those of the one before.
function stepShape(side) {
  const chunks = [];
  let row = 0, column = 0;
  for (const chunk of story.step ? story.step.rows : []) {
    const keys = chunk.keys.reduce((most, stretch) => Math.max(most, stretch[2]), 0);
    chunks.push({ ...chunk, row, column, count: keys });
    row += chunk.num_new;
    column += keys;
  }
  const dpr = window.devicePixelRatio || 1;
  return { chunks, x: column ? side / column : 0, y: row ? Math.min(side / row, 40 * dpr) : 0 };
}

function drawStep(side, dpr, colours) {
  const { chunks, x, y } = stepShape(side);
  if (!chunks.length) return drawGhost(side, dpr, colours);
  for (const chunk of chunks) {
    pen.save();
    pen.beginPath();
    const left = chunk.column * x, top = chunk.row * y, bottom = (chunk.row + chunk.num_new) * y;
    pen.moveTo(left, top);
    for (let index = 0; index < chunk.num_new; index++) {
      const right = left + (chunk.start + index + 1) * x;
      pen.lineTo(right, top + index * y);
      pen.lineTo(right, top + (index + 1) * y);
    }
    pen.lineTo(left, bottom);
    pen.clip();
    for (const [member, from, to] of chunk.keys) {
      pen.fillStyle = colours.of(member < 0 ? member : story.segments[member].colour);
      pen.globalAlpha = member === chunk.segment ? 0.86 : 0.5;
      pen.fillRect(left + from * x, top, (to - from) * x, bottom - top);
    }
    pen.restore();
    if (chunk.segment >= 0) {
      const part = story.segments[chunk.segment], border = part.first + part.prompt;
      if (chunk.count > border) {
        pen.strokeStyle = colours.ink;
        pen.lineWidth = dpr;
        pen.setLineDash([3 * dpr, 2.5 * dpr]);
        pen.beginPath();
        pen.moveTo(left + border * x, top);
        pen.lineTo(left + border * x, bottom);
        pen.stroke();
        pen.setLineDash([]);
      }
      if (chunk.count * x > 18 * dpr) {
        pen.fillStyle = colours.soft;
        pen.font = 12 * dpr + "px " + colours.font;
        pen.textAlign = "left";
        pen.fillText(part.name.slice(0, 12), left + 3 * dpr, Math.min(bottom + 13 * dpr, side - 3 * dpr));
      }
    }
  }
  if (cell) crosshair(cell.row * y, cell.key * x, y, x, side, dpr, colours);
}

function crosshair(top, left, height, width, side, dpr, colours) {
  pen.fillStyle = colours.ink;
  pen.globalAlpha = 0.16;
  pen.fillRect(0, top, side, Math.max(height, dpr));
  pen.fillRect(left, 0, Math.max(width, dpr), side);
  pen.globalAlpha = 1;
  pen.strokeStyle = colours.ink;
  pen.lineWidth = dpr;
  const wide = Math.max(width, 5 * dpr), high = Math.max(height, 5 * dpr);
  pen.strokeRect(left + width / 2 - wide / 2, top + height / 2 - high / 2, wide, high);
}

function segmentAt(token) {
  return story.segments.find((part) => part.start <= token && token < part.end);
}

function textOf(part, offset) {
  const index = story.segments.indexOf(part);
  const text = offset < part.prompt ? (texts[index] || [])[offset] : part.texts[offset - part.prompt];
  return (text ?? "…").replace(/\n/g, "⏎");
}

function sentence(reads, query, key) {
  const facts = { q: query.at, qt: query.text, ql: query.name, k: key.at, kt: key.text, kl: key.name };
  const words = story.words[reads ? "mask.reads" : "mask.may_not"];
  return words.replace(/\{(\w+)\}/g, (_, name) => facts[name]);
}

function describe() {
  if (!cell) return "";
  return view === "story" ? describeStory() : describeStep();
}

function describeStory() {
  const token = (at) => {
    const part = segmentAt(at);
    return { at, name: part.name, text: textOf(part, at - part.start) };
  };
  const { row, key } = cell;
  const reads = story.bands.some(([from, to, first, last, grows]) =>
    from <= row && row < to && first <= key && key < last + (grows ? row - from : 0));
  return sentence(reads, token(row), token(key));
}

function describeStep() {
  const { chunks } = stepShape(canvas.width);
  const chunk = chunks.find((one) => one.row <= cell.row && cell.row < one.row + one.num_new);
  const owner = chunks.find((one) => one.column <= cell.key && cell.key < one.column + one.count);
  if (!chunk || !owner) return "";
  if (chunk.segment < 0 || owner.segment < 0) return story.words["mask.others"];
  const token = (one, position) => {
    const stretch = one.keys.find(([, from, to]) => from <= position && position < to);
    const part = story.segments[stretch ? stretch[0] : one.segment];
    return { at: position, name: part.name, text: textOf(part, position - part.first) };
  };
  const query = chunk.start + cell.row - chunk.row, key = cell.key - owner.column;
  return sentence(chunk === owner && key <= query, token(chunk, query), token(owner, key));
}

function locate(event) {
  const box = canvas.getBoundingClientRect();
  const right = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
  if (!story.size || right < 0 || right >= 1 || down < 0 || down >= 1) return null;
  if (view === "story") return { row: Math.floor(down * story.size), key: Math.floor(right * story.size) };
  const { chunks, x, y } = stepShape(canvas.width), last = chunks[chunks.length - 1];
  const row = Math.floor(down * canvas.height / y), key = Math.floor(right * canvas.width / x);
  return last && row < last.row + last.num_new ? { row, key } : null;
}

function point(next) {
  cell = next;
  hoverLine.textContent = describe();
  redraw();
}

function move(event) {
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!by || !story.size || view !== "story") return;
  event.preventDefault();
  const inside = (value) => Math.max(0, Math.min(story.size - 1, value));
  const from = cell || { row: 0, key: 0 };
  point({ row: inside(from.row + by[0]), key: inside(from.key + by[1]) });
}

canvas.addEventListener("pointermove", (event) => point(locate(event)));
canvas.addEventListener("pointerleave", () => point(null));
canvas.addEventListener("pointerdown", (event) => {
  point(locate(event));
  if (cell && view === "story") trigger("click", cell);
});
canvas.addEventListener("keydown", (event) => {
  move(event);
  if (event.key === "Enter" && cell && view === "story" && !event.ctrlKey && !event.metaKey) trigger("click", cell);
});
for (const button of buttons) {
  button.addEventListener("click", () => {
    view = button.dataset.view;
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    point(null);
  });
}
new ResizeObserver(redraw).observe(canvas);
new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
watch(["value", "texts"], read);
read();
