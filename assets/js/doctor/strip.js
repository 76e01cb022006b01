// The token strip: one line a token, only those in sight are in the page.
const LINE = 24, stripBox = find(".strip"), body = find(".strip-body"), space = find(".strip-space"), lines = find(".strip-rows");

const COLUMNS = [
  ["index", () => true, (at) => String(at)],
  ["id", () => strip.ids, (at) => String(strip.ids[at])],
  ["text", () => strip.texts, (at) => visible(strip.texts[at])],
  ["bytes", () => strip.bytes || strip.texts, bytesOf],
  ["offsets", () => strip.offsets, (at) => strip.offsets[at].join("–")],
  ["role", () => strip.roles, (at) => word("role." + strip.roles[at]) || strip.roles[at]],
  ["segment", () => mask.segments.length, (at) => { const part = segmentAt(at); return part ? part[2] + (part[3] < 0 ? " · " + word("padding") : "") : "–"; }],
  ["position", () => strip.positions, positionOf],
];

function bytesOf(at) {
  if (strip.bytes) return strip.bytes[at];
  if (strip.texts[at].includes("\ufffd")) return "";
  return [...new TextEncoder().encode(strip.texts[at])].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

// Positions come as runs in which they rise by one.
function inRuns(runs, at) {
  let low = 0, high = runs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (runs[middle][0] <= at) low = middle; else high = middle - 1;
  }
  return runs[low][1] + at - runs[low][0];
}

const isWrong = (at) => strip.right && inRuns(strip.right, at) !== inRuns(strip.positions, at);

function positionOf(at) {
  const given = inRuns(strip.positions, at);
  return isWrong(at) ? filled(word("strip.wrong"), { given, right: inRuns(strip.right, at) }) : String(given);
}

function readStrip() {
  strip = JSON.parse(props.strip || '{"count":0}');
  strip.broken = new Set(strip.split || []);
  stripBox.hidden = !strip.count;
  body.scrollTop = 0;
  space.style.height = strip.count * LINE + "px";
  drawStrip();
  show();
}

function drawStrip() {
  const columns = COLUMNS.filter(([, has]) => has());
  const head = find(".strip-head");
  head.replaceChildren(...columns.map(([name]) => box("strip-cell " + name, word("strip." + name))));
  const first = Math.max(0, Math.floor(body.scrollTop / LINE) - 2), last = Math.min(strip.count, first + Math.ceil(body.clientHeight / LINE) + 4);
  lines.style.transform = "translateY(" + first * LINE + "px)";
  const rows = [];
  for (let at = first; at < last; at++) rows.push(lineOf(at, columns));
  lines.replaceChildren(...rows);
}

function lineOf(at, columns) {
  const line = box("strip-line", ""), part = segmentAt(at);
  line.dataset.token = at;
  line.style.setProperty("--c", part && part[3] >= 0 ? "var(--q" + (part[3] % 8) + ")" : "var(--others)");
  if (locked && locked.query === at) line.classList.add("query");
  if (locked && locked.key === at) line.classList.add("key");
  line.append(...columns.map(([name, , text]) => box("strip-cell " + name, text(at))));
  if (strip.positions && isWrong(at)) line.querySelector(".position").classList.add("wrong");
  if (strip.broken.has(at)) {
    line.classList.add("split");
    const flag = box("flag", "✂");
    flag.title = word("strip.split");
    flag.setAttribute("aria-label", flag.title);
    line.append(flag);
  }
  return line;
}

function box(name, text) {
  const made = document.createElement("div");
  made.className = name;
  made.textContent = text;
  return made;
}

function stripTo(token) {
  const top = token * LINE;
  if (top < body.scrollTop || top + LINE > body.scrollTop + body.clientHeight) body.scrollTop = Math.max(0, top - 3 * LINE);
  drawStrip();
}

body.addEventListener("scroll", drawStrip);
lines.addEventListener("click", (event) => {
  const line = event.target.closest("[data-token]");
  if (!line || mask.queries !== mask.keys || !mask.queries) return;
  const at = Number(line.dataset.token);
  locked = { query: at, key: at };
  cell = null;
  zoom(Math.max(view.rows, view.cols), locked);
  drawStrip();
});
