// The fields of a card: which there are, how wide, and the input of each. What stands in one is text, in `card[name]`.
const PILLS = ["temperature", "max_new_tokens", "seed"];
const SAMPLING = ["top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"];
const OUTPUT = ["n", "draft"];
const TEXTS = ["stop", "json_schema", "regex", "choices", "system", "expected"];
const MORE = [...SAMPLING, "order", ...OUTPUT, "ignore_eos", ...TEXTS];
const OFF = { max_new_tokens: "64", top_k: "0", top_p: "1", min_p: "0", repetition_penalty: "1", presence_penalty: "0",
  frequency_penalty: "0", n: "1", draft: "0" };
const ORDERS = ["", "temperature,top_k,top_p,min_p,penalties"];

const say = kev.say, make = kev.make;
// The button has the key "stop".
const label = (name) => say(name === "stop" ? "stop_at" : name);
const blank = (id) => ({ id, max_new_tokens: OFF.max_new_tokens });

function button(action, run, look = "") {
  const name = say(action);
  return make("button", { type: "button", class: look, title: look.includes("icon") ? name : null,
    "aria-label": look.includes("icon") ? name : null, onclick: run }, look.includes("icon") ? "" : name);
}

// A text that grows with what is written into it.
function area(owner, name, id, hint, look) {
  const input = make("textarea", { rows: 1, placeholder: say(hint), "aria-label": say(name) });
  input.value = owner[name] || "";
  input.addEventListener("input", () => { owner[name] = input.value; grow(input); keep(); });
  grow(input);
  return make("div", { class: look, id }, input);
}

// Characters as a monospaced line counts them: a Chinese one is two wide.
function wideness(text) {
  return [...text].reduce((sum, sign) => sum + (sign > "\u2e7f" ? 2 : 1), 0);
}

function grow(input) {
  if (CSS.supports("field-sizing", "content")) return;
  input.style.height = "auto";
  if (input.scrollHeight) input.style.height = input.scrollHeight + "px";
}

// A short value behind its name.
function pill(card, name) {
  const hint = name === "temperature" ? defaults.temperature : name === "seed" ? say("seed_hint") : OFF[name];
  const input = make("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: hint });
  input.value = card[name] || "";
  const fit = () => { input.style.width = `calc(${Math.max(2, Math.min(20, wideness(input.value || input.placeholder)))}ch + 16px)`; };
  input.addEventListener("input", () => { card[name] = input.value; fit(); keep(); });
  input.addEventListener("fit", fit);
  fit();
  return make("label", { class: "pill " + name, id: name + "-" + card.id }, make("span", {}, label(name)), input);
}

// A longer one, on a line of its own.
function wide(card, name) {
  const input = make("textarea", { rows: 1, placeholder: say(name + "_hint"), spellcheck: "false" });
  input.value = card[name] || "";
  input.addEventListener("input", () => { card[name] = input.value; grow(input); keep(); });
  return make("label", { class: "pill wide " + name, id: name + "-" + card.id }, make("span", {}, label(name)), input);
}

// One of several; a value that is not among them stays, so that the run can say what is wrong with it.
function choice(card, name, options) {
  const input = make("select", {});
  offer(input, card[name] || "", options);
  input.addEventListener("change", () => { card[name] = input.value; keep(); });
  return make("label", { class: "pill " + name, id: name + "-" + card.id }, make("span", {}, say(name)), input);
}

function offer(input, value, options) {
  if (!options.some(([key]) => key === value)) options = [...options, [value, value]];
  input.replaceChildren(...options.map(([key, text]) => make("option", { value: key }, text)));
  input.value = value;
}

function tick(card, name) {
  const input = make("input", { type: "checkbox" });
  input.checked = Boolean(card[name]);
  input.addEventListener("change", () => { card[name] = input.checked ? "1" : ""; keep(); });
  return make("label", { class: "pill tick " + name, id: name + "-" + card.id }, input, make("span", {}, say(name)));
}
