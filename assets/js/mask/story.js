// What Python told of the run, and what can be read off it: which tokens there are, which rows a step had, and which
// cell is allowed. It holds no rule of its own: a cell is allowed exactly where a band (story) covers it, or where a
// step's row reaches (step); both were derived from the executed plan.
const OTHERS = -2;
const BLANK = { size: 0, segments: [], bands: [], steps: [], allowed: 0 };
let story = BLANK, texts = [], leaks = [];

function segmentAt(token) {
  return story.segments.find((part) => part.start <= token && token < part.end);
}

function tokenText(part, offset) {
  const index = story.segments.indexOf(part);
  const text = offset < part.prompt ? (texts[index] || [])[offset] : part.texts[offset - part.prompt];
  return (text ?? "…").replace(/\n/g, "⏎");
}

function numSteps() {
  const last = story.steps[story.steps.length - 1];
  return last ? last[0] + last[1] : 0;
}

// The rows of one forward: [segment, story position of the first new token, number of new tokens].
function stepRows(index) {
  const stretch = story.steps.find(([first, count]) => first <= index && index < first + count);
  return stretch ? stretch[2].map(([segment, start, count]) => [segment, start + index - stretch[0], count]) : [];
}

// How many tokens of each segment had gone through the model after step `index`.
function doneAfter(index) {
  const done = story.segments.map(() => 0);
  for (const [first, count, rows] of story.steps) {
    if (first > index) break;
    const on = Math.min(index, first + count - 1) - first;
    for (const [segment, start, num] of rows) {
      if (segment >= 0) done[segment] = start + on + num - story.segments[segment].first;
    }
  }
  return done;
}

// The keys of a step's row as stretches of its own story: [segment, from, to], the ancestors' first.
function keyStretches(segment, numKeys) {
  if (segment < 0) return [[OTHERS, 0, numKeys]];
  const found = [];
  for (let member = segment; member !== null; member = story.segments[member].parent) {
    const part = story.segments[member], end = part.first + part.end - part.start;
    found.unshift([member, part.first, member === segment ? numKeys : end]);
  }
  return found;
}

// The step laid out: one row a new token, the keys of each sequence beside those of the one before.
function stepLayout(index) {
  const chunks = [];
  let row = 0, column = 0;
  for (const [segment, start, count] of stepRows(index)) {
    const keys = start + count;
    chunks.push({ segment, start, count, row, column, keys, stretches: keyStretches(segment, keys) });
    row += count;
    column += keys;
  }
  return { chunks, rows: row, columns: column };
}

function covers([row, rowEnd, key, keyEnd, grows], at, of) {
  return row <= at && at < rowEnd && key <= of && of < keyEnd + (grows ? at - row : 0);
}

const storyReads = (row, key) => story.bands.some((band) => covers(band, row, key));
const isLeak = (row, key) => leaks.some((band) => covers(band, row, key));

// A step's cell as the tokens it joins; null where there is none.
function stepCell(layout, row, key) {
  const query = layout.chunks.find((one) => one.row <= row && row < one.row + one.count);
  const owner = layout.chunks.find((one) => one.column <= key && key < one.column + one.keys);
  if (!query || !owner) return null;
  const at = query.start + row - query.row, of = key - owner.column;
  return { query, owner, at, of, reads: query === owner && of <= at };
}

function stepToken(chunk, position) {
  if (chunk.segment < 0) return null;
  const stretch = chunk.stretches.find(([, from, to]) => from <= position && position < to);
  const part = story.segments[stretch ? stretch[0] : chunk.segment];
  return { at: position, name: part.name, text: tokenText(part, position - part.first) };
}

function storyToken(at) {
  const part = segmentAt(at);
  return { at, name: part.name, text: tokenText(part, at - part.start) };
}
