// The first minute, above the cards: where to look, step by step. Dismissed once, it stays away in this browser.
const STEPS = [["cards", "#board"], ["run", "#run"], ["mask", "#mask-panel"], ["memory", "#kv-panel"], ["audit", "#audit"]];
const place = element.querySelector(".tour");
let at = 0;

function drawTour() {
  const [name, target] = STEPS[at], isLast = at === STEPS.length - 1, shown = document.querySelector(".toured");
  if (shown) shown.classList.remove("toured");
  if (kev.kept("kev-tour")) return place.replaceChildren();
  if (at) document.querySelector(target).classList.add("toured");
  const turn = (name, act) => kev.make("button", { type: "button", class: name, onclick: act }, kev.say("tour." + name));
  place.replaceChildren(kev.make("section", { "aria-label": kev.say("tour.label") },
    kev.make("p", { role: "status" }, kev.make("b", {}, kev.say("tour.step", { index: at + 1, total: STEPS.length })), " ",
      kev.say("tour." + name)),
    kev.make("div", {}, isLast ? turn("end", end) : turn("next", () => { at++; drawTour(); place.querySelector("button").focus(); }),
      isLast ? null : turn("dismiss", end))));
}

function end() {
  kev.keep("kev-tour", "seen");
  drawTour();
}

kev.onLanguage(drawTour);
drawTour();
