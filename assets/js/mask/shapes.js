// The picture as a list of shapes in pixels, so that screen, PNG and SVG are one drawing.
// `port` is what is looked at: { side, left, top, across, down } in cells, `dpr` how many pixels a CSS pixel has.
const scaleX = (port) => port.side / port.across, scaleY = (port) => port.side / port.down;
const TEXT_CELL = 15; // from so many CSS pixels a cell on, tokens are written out

function palette() {
  const style = getComputedStyle(element);
  const get = (name) => style.getPropertyValue(name).trim();
  const questions = Array.from({ length: 8 }, (_, index) => get("--q" + index));
  const special = { "-1": get("--shared"), "-2": get("--others") };
  return {
    of: (colour) => special[colour] || questions[colour % 8], ink: get("--ink"), soft: get("--soft"), bad: get("--bad"),
    panel: get("--panel"), canvas: get("--canvas"), line: get("--line"), font: style.fontFamily,
  };
}

// In which colour a segment is shown: its question's, or its adapter's (the base is grey).
function paintOf(segment) {
  if (segment < 0) return OTHERS;
  return paint === "question" ? story.segments[segment].colour : story.segments[segment].voice;
}

function storyShapes(port, dpr, colours, done) {
  const x = scaleX(port), y = scaleY(port), shapes = [];
  for (const band of story.bands) {
    const part = segmentAt(band[0]), owner = segmentAt(band[2]), index = story.segments.indexOf(part);
    const executed = Math.min(band[1], part.start + done[index]), prompt = Math.min(band[1], part.start + part.prompt);
    const fill = colours.of(paintOf(index)), alpha = part === owner ? 0.86 : 0.4;
    const hatch = part !== owner && owner.shared ? colours.panel : null;
    if (executed < prompt) shapes.push(bandShape(band, prompt, port, { fill, alpha: alpha * 0.3 }));
    if (executed > band[0]) shapes.push(bandShape(band, executed, port, { fill, alpha, hatch }));
  }
  for (const band of leaks) shapes.push(bandShape(band, band[1], port, { fill: colours.bad, alpha: 0.9, hatch: colours.panel }));
  for (const part of story.segments) {
    const border = part.start + part.prompt, top = (part.start - port.top) * y, right = (part.end - port.left) * x;
    if (part.end > border) {
      shapes.push({ kind: "dash", from: [(part.start - port.left) * x, (border - port.top) * y],
        to: [(border - port.left) * x, (border - port.top) * y], stroke: colours.ink });
    }
    if ((part.end - part.start) * y > 16 * dpr) {
      // In the corner above its diagonal, which a causal mask leaves empty; a name too long for it stands beside it.
      const text = part.name.slice(0, 14), wide = 7 * dpr * text.length;
      const isBeside = wide > (part.end - part.start) * x * 0.8 && right + wide < port.side;
      shapes.push({ kind: "text", at: [isBeside ? right + 3 * dpr : Math.min(right, port.side) - 3 * dpr, Math.max(top, 0) + 13 * dpr],
        text, fill: colours.soft, align: isBeside ? "start" : "end", size: 12 * dpr, halo: colours.canvas });
    }
  }
  return shapes.filter(Boolean);
}

// Rows [row, end) of a band, cut to what is looked at; with few pixels a cell the stairs of the diagonal become a line.
function bandShape([row, , key, keyEnd, grows], end, port, look) {
  const x = scaleX(port), y = scaleY(port);
  const first = Math.max(row, Math.floor(port.top)), last = Math.min(end, Math.ceil(port.top + port.down));
  if (first >= last || key > port.left + port.across) return null;
  const at = (column, line) => [(column - port.left) * x, (line - port.top) * y];
  const right = (line) => keyEnd + (grows ? line - row : 0);
  const points = [at(key, first)];
  if (!grows) points.push(at(keyEnd, first), at(keyEnd, last));
  else if (y < 2) points.push(at(right(first), first), at(right(last), last));
  else for (let line = first; line < last; line++) points.push(at(right(line), line), at(right(line), line + 1));
  points.push(at(key, last));
  return { kind: "area", points, ...look };
}

function stepShapes(layout, port, dpr, colours) {
  const x = scaleX(port), y = scaleY(port), shapes = [];
  for (const chunk of layout.chunks) {
    for (const [member, from, to] of chunk.stretches) {
      // Row i of the chunk reaches key start + i: before the chunk's own start a block, behind it the stairs.
      const fill = colours.of(paintOf(member < 0 ? member : chunk.segment));
      const look = { fill, alpha: member === chunk.segment ? 0.86 : 0.4,
        hatch: member >= 0 && member !== chunk.segment ? colours.panel : null };
      const whole = Math.min(to, chunk.start + 1), end = chunk.row + chunk.count;
      if (whole > from) shapes.push(bandShape([chunk.row, end, chunk.column + from, chunk.column + whole, 0], end, port, look));
      if (to > chunk.start + 1) {
        const key = Math.max(from, chunk.start + 1), skip = key - chunk.start;
        shapes.push(bandShape([chunk.row + skip, end, chunk.column + key, chunk.column + key + 1, 1], end, port, look));
      }
    }
    const left = (chunk.column - port.left) * x, bottom = (chunk.row + chunk.count - port.top) * y;
    if (chunk.segment >= 0) {
      const part = story.segments[chunk.segment], border = (chunk.column + part.first + part.prompt - port.left) * x;
      if (chunk.keys > part.first + part.prompt) {
        shapes.push({ kind: "dash", from: [border, (chunk.row - port.top) * y], to: [border, bottom], stroke: colours.ink });
      }
    }
    const name = chunk.segment < 0 ? kev.say("kv.others") : story.segments[chunk.segment].name;
    if (chunk.keys * x > 14 * dpr) {
      shapes.push({ kind: "text", at: [left + 2 * dpr, Math.min(bottom + 13 * dpr, port.side - 3 * dpr)], fill: colours.soft,
        text: name.slice(0, 14), align: "start", size: 12 * dpr, halo: colours.canvas });
    }
  }
  return shapes.filter(Boolean);
}

// Zoomed in far enough, the tokens stand beside their rows and above their columns.
function tokenShapes(port, dpr, colours, rowText, keyText) {
  const x = scaleX(port), y = scaleY(port), shapes = [];
  if (Math.min(x, y) < TEXT_CELL * dpr) return shapes;
  const label = { fill: colours.ink, size: 11 * dpr, halo: colours.canvas };
  for (let row = Math.ceil(port.top); row < port.top + port.down; row++) {
    const text = rowText(row);
    if (text !== null) shapes.push({ kind: "text", at: [5 * dpr, (row + 0.5 - port.top) * y + 4 * dpr], text: text.slice(0, 16), align: "start", ...label });
  }
  for (let key = Math.ceil(port.left); key < port.left + port.across; key++) {
    const text = keyText(key);
    if (text !== null) shapes.push({ kind: "text", at: [(key + 0.5 - port.left) * x + 4 * dpr, 5 * dpr], text: text.slice(0, 12), align: "start", turned: true, ...label });
  }
  return shapes;
}

function crosshairShapes(cell, port, dpr, colours, isLocked) {
  if (!cell) return [];
  const x = scaleX(port), y = scaleY(port), left = (cell.key - port.left) * x, top = (cell.row - port.top) * y;
  const wide = Math.max(x, 5 * dpr), high = Math.max(y, 5 * dpr), alpha = isLocked ? 0.3 : 0.16;
  const box = (a, b, w, h) => [[a, b], [a + w, b], [a + w, b + h], [a, b + h]];
  return [
    { kind: "area", points: box(0, top, port.side, Math.max(y, dpr)), fill: colours.ink, alpha },
    { kind: "area", points: box(left, 0, Math.max(x, dpr), port.side), fill: colours.ink, alpha },
    { kind: "area", points: box(left + x / 2 - wide / 2, top + y / 2 - high / 2, wide, high), stroke: colours.ink },
  ];
}

// Before the first run: the shape of things to come, in hairlines.
function ghostShapes(side, dpr, colours) {
  const shapes = [];
  let from = 0;
  for (const share of [0.22, 0.3, 0.18, 0.3]) {
    const near = from * side + dpr, far = (from + share) * side - dpr;
    shapes.push({ kind: "area", points: [[near, near], [near, far], [far, far]], stroke: colours.soft, alpha: 0.35 });
    from += share;
  }
  return shapes;
}
