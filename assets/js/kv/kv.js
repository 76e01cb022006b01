// KV memory: a bar of bytes stacked by question, one square for each block, the use over the run, the device around it.
const find = (selector) => element.querySelector(selector);
const canvas = find("canvas"), bar = find(".bar .parts"), mark = find(".mark"), hoverLine = find(".hover");
const pen = canvas.getContext("2d"), say = kev.say;
const LEAST_SHOWN = 96, MOST_COLUMNS = 128, OTHERS = -2, RESERVED = -3;
let kv = { segments: [], blocks: [], total: 0, scale: 1 };
let frame = 0, version = 0;

function read() {
  kv = JSON.parse(props.value);
  write();
}

function write() {
  const isRun = kv.total > 0;
  find(".title").textContent = say("kv.title");
  find(".figures").textContent = isRun
    ? say("kv.used", { budget: size(kv.budget),
      ...Object.fromEntries(["used", "predicted", "peak"].map((key) => [key, size(kv[key], kv.budget, false)])) })
    : say("kv.empty", { budget: size(kv.budget), per_token: size(kv.per_token) });
  const used = kv.blocks.reduce((sum, [, count, owner]) => sum + (owner === RESERVED ? 0 : count), 0);
  canvas.setAttribute("aria-label", isRun ? say("kv.label", { used, total: kv.total }) : say("kv.title"));
  const free = kv.total - shape().shown;
  find(".free").textContent = free > 0 ? say("kv.free", { count: free.toLocaleString("en") }) : "";
  mark.hidden = !kv.predicted;
  mark.style.left = Math.min(100, 100 * kv.predicted / kv.scale) + "%";
  mark.title = isRun ? say("kv.mark", { size: size(kv.predicted) }) : "";
  const parts = kv.segments.filter(([, , bytes]) => bytes);
  if (kv.others) parts.push([OTHERS, say("kv.others"), kv.others]);
  bar.replaceChildren(...parts.map(([colour, name, bytes]) => kev.make("div", {
    style: `width: ${100 * bytes / kv.scale}%; background: ${variable(colour)}`, title: name + ": " + size(bytes) })));
  find(".bar").title = isRun && kv.scale < kv.budget ? say("kv.scale", { size: size(kv.scale) }) : "";
  writeDevice(isRun);
  drawLine(isRun);
  fillTable();
  redraw();
}

// The squares in words: a row for each owner, with the blocks that are his.
function fillTable() {
  const cells = (tag, texts) => kev.make("tr", {}, ...texts.map((text) => kev.make(tag, {}, String(text))));
  const rows = new Map();
  for (const [first, count, owner, refs, generation] of kv.blocks) {
    const blocks = count > 1 ? `${first}–${first + count - 1}` : first, row = rows.get(owner) || [0, []];
    rows.set(owner, row);
    row[0] += count;
    row[1].push(say(refs > 1 ? "kv.stretch_shared" : "kv.stretch", { blocks, generation, refs }));
  }
  const bytes = (owner) => owner === OTHERS ? size(kv.others) : owner === RESERVED ? "" : size(kv.segments[owner][2]);
  const free = kv.total - [...rows.values()].reduce((sum, [count]) => sum + count, 0);
  find("caption").textContent = canvas.getAttribute("aria-label");
  find("thead").replaceChildren(cells("th", ["owner", "count", "bytes", "where"].map((name) => say("kv.column." + name))));
  find("tbody").replaceChildren(
    ...[...rows].sort(([one], [other]) => (one < 0) - (other < 0) || one - other)
      .map(([owner, [count, where]]) => cells("td", [ownerName(owner), count, bytes(owner), where.join("; ")])),
    ...(free > 0 ? [cells("td", [say("kv.nobody"), free, "", ""])] : []));
}

const ownerName = (owner) =>
  owner === OTHERS ? say("kv.others") : owner === RESERVED ? say("kv.reserved") : kv.segments[owner][1];

function writeDevice(isRun) {
  const facts = [];
  if (kv.device) {
    const [weights, adapters, free] = kv.device;
    facts.push(say("kv.weights", { size: size(weights) }));
    if (adapters) facts.push(say("kv.adapters", { size: size(adapters) }));
    if (free !== null) facts.push(say("kv.device_free", { size: size(free) }));
  }
  if (isRun && kv.cached) facts.push(say("kv.cached", { hits: kv.hits, count: kv.cached.toLocaleString("en") }));
  else if (isRun && kv.kept) facts.push(say("kv.kept", { size: size(kv.kept) }));
  find(".device").replaceChildren(...facts.map((fact) => kev.make("span", {}, fact)));
}

// Use after each step, and the prediction it stays under.
function drawLine(isRun) {
  const svg = find(".over"), line = kv.line || [];
  svg.toggleAttribute("hidden", !isRun || line.length < 2);
  if (line.length < 2) return;
  const top = Math.max(kv.predicted, ...line) * 1.08;
  const at = (value, index) => `${(400 * index / (line.length - 1)).toFixed(1)} ${(30 - 29 * value / top).toFixed(2)}`;
  const path = "M" + line.map(at).join("L");
  find(".over .area").setAttribute("d", path + "L400 30L0 30Z");
  find(".over .top").setAttribute("d", path);
  find(".over .plan").setAttribute("d", `M0 ${30 - 29 * kv.predicted / top}H400`);
  svg.setAttribute("aria-label", say("kv.line", { steps: line.length, peak: size(kv.peak) }));
}

// Bytes with the unit a person reads; in the unit of `beside`, so that the two compare.
function size(bytes, beside = bytes, isNamed = true) {
  const units = ["B", "KiB", "MiB", "GiB"], power = Math.min(3, Math.floor(Math.log2(Math.max(1, beside)) / 10));
  const value = bytes / 1024 ** power, digits = value >= 100 || Number.isInteger(value) ? 0 : value < 1 ? 2 : 1;
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return isNamed ? text + " " + units[power] : text;
}

function variable(colour) {
  const name = { "-1": "--shared", "-2": "--others", "-3": "--reserved" }[colour] || "--q" + colour % 8;
  return "var(" + name + ")";
}

// As many blocks as are in use, at least three rows; more columns where there are many.
function shape() {
  const used = kv.blocks.reduce((most, [first, count]) => Math.max(most, first + count), 0);
  let columns = 32;
  while (columns < MOST_COLUMNS && used > columns * columns / 2) columns *= 2;
  const rows = Math.ceil(Math.max(used, LEAST_SHOWN) / columns);
  return { columns, rows, shown: kv.total ? Math.min(kv.total, rows * columns) : rows * columns };
}

function redraw() {
  if (!frame) frame = requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  const width = canvas.clientWidth;
  if (!width) return;
  const dpr = window.devicePixelRatio || 1, { columns, rows, shown } = shape();
  const pitch = width / columns, gap = pitch > 8 ? 2 : 1, tall = Math.min(pitch, 11);
  canvas.style.height = rows * tall + "px";
  canvas.width = Math.round(width * dpr);
  canvas.height = Math.round(rows * tall * dpr);
  pen.scale(dpr, dpr);
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const at = (index) => [index % columns * pitch, Math.floor(index / columns) * tall, pitch - gap, tall - gap];
  pen.fillStyle = colour("--empty");
  for (let index = 0; index < shown; index++) pen.fillRect(...at(index));
  for (const [first, count, owner, refs] of kv.blocks) {
    pen.fillStyle = colour(variable(owner < 0 ? owner : kv.segments[owner][0]).slice(4, -1));
    for (let index = first; index < first + count; index++) pen.fillRect(...at(index));
    if (refs > 1) for (let index = first; index < first + count; index++) hatch(at(index), colour("--panel"));
  }
  canvas.dataset.version = ++version;
  canvas.dataset.used = kv.blocks.reduce((sum, [, count]) => sum + count, 0);
}

// A block in several tables: the same colour with two strokes through it.
function hatch([left, top, width, height], colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const share of [0.5, 1]) {
    pen.moveTo(left, top + height * share);
    pen.lineTo(left + width * share, top);
  }
  pen.stroke();
}

function describe(event) {
  const box = canvas.getBoundingClientRect(), { columns, rows, shown } = shape();
  const column = Math.floor((event.clientX - box.left) / box.width * columns);
  const row = Math.floor((event.clientY - box.top) / box.height * rows);
  const index = row * columns + column;
  if (!kv.total || index < 0 || index >= shown) return "";
  const block = kv.blocks.find(([first, count]) => first <= index && index < first + count);
  if (!block) return say("kv.nobody");
  const [, , owner, refs, generation] = block;
  return say(refs > 1 ? "kv.block_shared" : "kv.block", { index, owner: ownerName(owner), refs, generation });
}

canvas.addEventListener("pointermove", (event) => { hoverLine.textContent = describe(event); });
canvas.addEventListener("pointerleave", () => { hoverLine.textContent = ""; });
new ResizeObserver(redraw).observe(bar);
new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
kev.onLanguage(write);
watch("value", read);
read();
