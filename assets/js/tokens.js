// The tokens of the packed row in the colours of their adapters, beside the mask and out of the same value: the files
// of mask/ stand above this one. A token that is pointed at is shown in the mask: its row, and itself as the key.
paint = "adapter";
write();
const flow = find(".flow"), MOST_FIRST = 160, MOST_LAST = 40;
let drawn = "";

function variableOf(colour) {
  return colour >= 0 ? `var(--q${colour % 8})` : "var(--shared)";
}

function drawTokens() {
  find(".tokens .title").textContent = kev.say("tokens.title");
  find(".tokens .hint").textContent = story.size ? "" : kev.say("tokens.empty");
  const voices = new Map(story.segments.map((part) => [part.adapter, part]));
  find(".voices").replaceChildren(...[...voices.values()].map((part) =>
    kev.make("span", { style: "--c: " + variableOf(part.voice) }, part.adapter ?? kev.say("base"))));
  // Another run, or the same one with its prompt's texts: anew. Otherwise only what it has generated since is added.
  const next = JSON.stringify([props.texts, story.segments.map((part) => [part.prompt, part.voice, part.adapter])]);
  if (next !== drawn) {
    flow.replaceChildren(...story.segments.map((part) =>
      kev.make("p", { class: "run", style: "--c: " + variableOf(part.voice), "data-done": "0" })));
  }
  drawn = next;
  story.segments.forEach(extend);
}

// The middle of a long prompt is counted, not written out.
function extend(part, index) {
  const line = flow.children[index], total = part.end - part.start;
  const last = part.prompt > MOST_FIRST + MOST_LAST ? part.prompt - MOST_LAST : MOST_FIRST;
  for (let offset = Number(line.dataset.done); offset < total; offset++) {
    if (offset === MOST_FIRST && last > MOST_FIRST) {
      line.append(kev.make("em", {}, kev.say("tokens.more", { count: last - MOST_FIRST })));
      offset = last;
    }
    const look = offset < part.prompt ? null : "new";
    line.append(kev.make("i", { "data-offset": offset, class: look }, tokenText(part, offset)));
  }
  line.dataset.done = total;
}

flow.addEventListener("pointerover", (event) => {
  const node = event.target.closest("i");
  if (!node || view !== "story") return;
  const part = story.segments[[...flow.children].indexOf(node.parentElement)];
  const at = part.start + Number(node.dataset.offset);
  point({ row: at, key: at });
  node.title = kev.say("tokens.one", { at, text: node.textContent, name: part.adapter ?? kev.say("base") });
});
flow.addEventListener("pointerleave", () => point(null));
watch(["value", "texts"], drawTokens);
kev.onLanguage(drawTokens);
drawTokens();
