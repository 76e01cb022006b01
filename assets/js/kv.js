// KV memory: a bar of bytes stacked by question, and one square for each block.
const find = (selector) => element.querySelector(selector);
const canvas = find("canvas"), bar = find(".bar .parts"), mark = find(".mark"), hoverLine = find(".hover");
const pen = canvas.getContext("2d");
const LEAST_SHOWN = 96, MOST_COLUMNS = 128;
let kv = { stacks: [], blocks: [], total: 0, scale: 1, words: {} };
let frame = 0, version = 0;

function read() {
  kv = JSON.parse(props.value);
  find(".title").textContent = kv.words["kv.title"];
  find(".figures").textContent = kv.figures;
  canvas.setAttribute("aria-label", kv.label);
  const free = kv.total - shape().shown;
  find(".scale").textContent = kv.scale_text;
  mark.hidden = !kv.predicted;
  mark.style.left = Math.min(100, 100 * kv.predicted / kv.scale) + "%";
  find(".free").textContent = free > 0 ? kv.words["kv.free"].replace("{count}", free.toLocaleString("en")) : "";
  bar.replaceChildren(...kv.stacks.map(([colour, name, bytes]) => {
    const part = document.createElement("div");
    part.style.width = 100 * bytes / kv.scale + "%";
    part.style.background = variable(colour);
    part.title = name + ": " + (bytes / 2 ** 20).toFixed(1) + " MiB";
    return part;
  }));
  redraw();
}

function variable(colour) {
  const name = { "-1": "--shared", "-2": "--others", "-3": "--reserved" }[colour] || "--q" + colour % 8;
  return "var(" + name + ")";
}

// As many blocks as are in use, at least three rows; more columns where there are many.
function shape() {
  const used = kv.blocks.reduce((most, block) => Math.max(most, block[0] + 1), 0);
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
  for (const [index, owner, , refs] of kv.blocks) {
    const box = at(index);
    pen.fillStyle = colour(variable(owner).slice(4, -1));
    pen.fillRect(...box);
    if (refs > 1) hatch(box, colour("--panel"));
  }
  canvas.dataset.version = ++version;
  canvas.dataset.used = kv.blocks.length;
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
  const block = kv.blocks.find((one) => one[0] === index);
  const [, , owner, refs, generation] = block || [index, null, kv.words["kv.nobody"], 0, null];
  if (generation === null) return owner;
  const facts = { index, owner, refs, generation };
  return kv.words[refs > 1 ? "kv.block_shared" : "kv.block"].replace(/\{(\w+)\}/g, (_, name) => facts[name]);
}

canvas.addEventListener("pointermove", (event) => { hoverLine.textContent = describe(event); });
canvas.addEventListener("pointerleave", () => { hoverLine.textContent = ""; });
new ResizeObserver(redraw).observe(bar);
new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
watch("value", read);
read();
