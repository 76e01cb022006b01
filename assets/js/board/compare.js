// Answers side by side, and what of them differs from the one that was chosen as the reference.
let reference = null, onlyDifferent = false;

function answersNow() {
  const found = [];
  for (const card of board.cards) {
    const one = answers[card.id];
    (one && one.samples || []).forEach((sample, index, all) => {
      if (sample.text) found.push({ card, sample, earlier: one.earlier, name: all.length > 1 ? `${card.id} ${index + 1}` : card.id });
    });
    for (const [temperature, texts] of one && one.sweep ? one.sweep.groups : []) {
      texts.forEach((text, index) => found.push({ card, sample: { text, facts: [] }, temperature, earlier: one.earlier, name: `${card.id} ${temperature} · ${index + 1}` }));
    }
  }
  return found;
}

// While answers stream, the columns stay and their texts change: a button under the pointer is not taken away.
function writeColumns() {
  const fresh = columnsNode(), now = [...list.querySelectorAll(".one-beside")], next = [...fresh.querySelectorAll(".one-beside")];
  const isSame = now.length === next.length && now.every((one, index) => one.dataset.name === next[index].dataset.name && one.className === next[index].className);
  if (!isSame || !now.length) return list.replaceChildren(fresh);
  now.forEach((one, index) => {
    for (const part of [".soft", ".text", ".meta"]) one.querySelector(part).replaceWith(next[index].querySelector(part));
  });
}

function columnsNode() {
  const found = answersNow();
  if (found.length < 2) return make("p", { class: "hint" }, say("beside.empty"));
  const chosen = found.find((one) => one.name === reference) || found[0];
  const base = words(chosen.sample.text);
  return make("div", { class: "beside" }, ...found.map((one) => columnNode(one, one === chosen, base)));
}

function columnNode(one, isReference, base) {
  const parts = isReference ? [[true, one.sample.text]] : differences(base, words(one.sample.text));
  const text = make("p", { class: "text" }, ...parts.map(([isSame, run]) =>
    isSame ? (onlyDifferent && !isReference ? make("span", { class: "gone" }, " … ") : run) : make("mark", {}, run)));
  const isSame = !isReference && parts.every(([same]) => same);
  const facts = [one.card.adapter || say("base"), "T " + (one.temperature ?? (one.card.temperature || defaults.temperature)), ...one.sample.facts.slice(1, 2)];
  return make("section", { "data-name": one.name, class: `one-beside q${LETTERS.indexOf(one.card.id) % 8}${isReference ? " reference" : ""}` },
    make("header", {}, make("button", { type: "button", class: "letter", title: say("beside.reference"),
      "aria-label": say("beside.reference") + ": " + one.name, "aria-pressed": String(isReference),
      onclick: () => { reference = one.name; drawBoard(); } }, one.name),
    make("span", { class: "soft" }, isReference ? say("beside.base") : isSame ? say("beside.same") : ""),
    button("copy", (event) => copy(event.currentTarget, answersNow().find(({ name }) => name === one.name).sample.text), "quiet")),
    text, make("p", { class: "meta" }, make("span", {}, facts.join(" · "))));
}

// Words with the blanks before them; in scripts without blanks, words as the browser finds them.
function words(text) {
  if (!window.Intl || !Intl.Segmenter) return text.match(/\s*[^\s]+|\s+$/g) || [];
  const found = [];
  let blank = "";
  for (const { segment, isWordLike } of new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)) {
    if (!isWordLike && !segment.trim()) blank += segment;
    else { found.push(blank + segment); blank = ""; }
  }
  return blank ? [...found, blank] : found;
}

// The runs of `theirs` that are in `base` in the same order, and those that are not: [isSame, text].
function differences(base, theirs) {
  const key = (word) => word.trim(), rows = base.length + 1, columns = theirs.length + 1;
  if (rows * columns > 9e6) return [[base.join("") === theirs.join(""), theirs.join("")]];
  const lengths = new Uint16Array(rows * columns);
  for (let i = base.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) {
      lengths[i * columns + j] = key(base[i]) === key(theirs[j]) ? lengths[(i + 1) * columns + j + 1] + 1
        : Math.max(lengths[(i + 1) * columns + j], lengths[i * columns + j + 1]);
    }
  }
  const found = [];
  const push = (isSame, word) => {
    if (found.length && found[found.length - 1][0] === isSame) found[found.length - 1][1] += word;
    else found.push([isSame, word]);
  };
  let i = 0, j = 0;
  while (j < theirs.length) {
    if (i < base.length && key(base[i]) === key(theirs[j])) { push(true, theirs[j]); i++; j++; }
    else if (i < base.length && lengths[(i + 1) * columns + j] >= lengths[i * columns + j + 1]) i++;
    else { push(false, theirs[j]); j++; }
  }
  return found;
}
