// What a card got: its texts, or the sentence about what is wrong. Everything is written as text.
function drawAnswer(place, letter) {
  const found = answers[letter];
  if (!found) {
    place.replaceChildren(make("p", { class: "hint" }, say("answer.hint")));
    return;
  }
  const parts = found.sweep ? sweepParts(found) : [];
  if (found.mistake) parts.push(make("p", { class: "mistake", role: "alert" }, found.mistake));
  const samples = found.samples || [];
  if (samples.length === 1) parts.push(...sampleParts(samples[0], found));
  if (samples.length > 1) {
    parts.push(make("ol", { class: "samples" }, ...samples.map((one) => make("li", {}, ...sampleParts(one, found)))));
  }
  place.replaceChildren(make("div", { "data-status": found.status, class: found.earlier ? "earlier" : "" }, ...parts));
}

function sampleParts(sample, found) {
  const parts = [];
  if (sample.pieces && board.tokens) parts.push(make("div", { class: "token-view" }, ...tokenText(sample)));
  else if (sample.text) parts.push(make("p", { class: "text" }, make("span", {}, sample.text)));
  else if (sample.is_done && !sample.mistake) parts.push(make("p", { class: "hint" }, say("answer.nothing")));
  if (sample.mistake) parts.push(make("p", { class: "mistake", role: "alert" }, sample.mistake));
  const facts = found.waiting ? [found.waiting] : [...sample.facts];
  if (found.earlier) facts.unshift(say("answer.earlier"));
  parts.push(make("p", { class: "meta" }, make("span", {}, ...facts.flatMap((fact, index) => [index ? " · " : "",
    make("span", { class: "fact" }, fact)])),
    sample.text ? button("copy", (event) => copy(event.currentTarget, sample.text), "quiet") : null));
  if (sample.sampling) parts.push(make("p", { class: "tuple" }, sample.sampling));
  return parts;
}

async function copy(pressed, text) {
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure origin there is no clipboard object; the old way still works.
    const box = make("textarea", { class: "sr" });
    box.value = text;
    document.body.append(box);
    box.select();
    isCopied = document.execCommand("copy");
    box.remove();
  }
  pressed.textContent = say(isCopied ? "copied" : "copy_failed");
  setTimeout(() => { pressed.textContent = say("copy"); }, 1500);
}
