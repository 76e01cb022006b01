// What Python told of the examined mask, and what can be said of one cell of it. It holds no rule of its own: right,
// leaking and missing cells come as bands (or, of very many, as blocks and the stretch that is looked at).
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

const cells = () => near && mask.step > 1 && Math.max(view.rows, view.cols) <= 256 ? { sets: near, step: 1 } : { sets: mask, step: mask.step };
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
