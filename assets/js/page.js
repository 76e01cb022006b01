// The page itself: language and theme kept in this browser, and the keyboard.
window.kev = (() => {
  const LANGUAGE = "kev-language", THEME = "kev-theme";

  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };

  const browserLanguage = () => navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en";

  let language = kept(LANGUAGE) in window.kevCatalogue ? kept(LANGUAGE) : browserLanguage();
  const listeners = [];

  // The text of `key` in the chosen language, its placeholders filled; of `{count|step|steps}` one word for 1.
  const say = (key, facts = {}) => {
    const text = window.kevCatalogue[language][key];
    if (text === undefined) throw new Error("no text for " + key);
    return text.replace(/\{(\w+)(?:\|([^|{}]*)\|([^|{}]*))?\}/g, (_, name, one, more) =>
      one === undefined ? facts[name] : String(facts[name]) === "1" ? one : more);
  };

  // An element with properties (`on…` are listeners, others attributes) and children, which are nodes or plain text.
  const make = (tag, properties = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  };

  // At load: the language chosen last, and its labels where Gradio painted those of another one.
  const greet = (spoken) => {
    document.documentElement.lang = language;
    const isPainted = language === navigator.language || (language === "en" && browserLanguage() === "en");
    return [language, ...(isPainted ? spoken.map(() => ({ __type__: "update" })) : speak(language, spoken))];
  };

  // One update for each component: its words in the language that was chosen.
  const speak = (name, spoken) => {
    const words = window.kevCatalogue[name], isNew = name !== language;
    language = name;
    keep(LANGUAGE, name);
    document.documentElement.lang = name;
    document.title = words.title;
    if (isNew) for (const listener of listeners) listener();
    return spoken.map((keys) => {
      const update = { __type__: "update" };
      for (const [property, key] of Object.entries(keys)) update[property] = words[key];
      return update;
    });
  };

  // Kept where it is chosen: Gradio tells its own listeners of a change only a moment later, and the page may be gone then.
  document.addEventListener("change", (event) => {
    const chosen = event.target.closest("#language") && event.target.value;
    if (chosen in window.kevCatalogue) keep(LANGUAGE, chosen);
  });

  const showTheme = (theme) => {
    document.body.classList.toggle("dark", theme === "dark");
    document.documentElement.style.colorScheme = theme;
  };
  const toggleTheme = () => {
    const theme = document.body.classList.contains("dark") ? "light" : "dark";
    keep(THEME, theme);
    showTheme(theme);
  };
  const chosenTheme = kept(THEME);
  if (chosenTheme) showTheme(chosenTheme);

  const press = (id) => {
    const button = document.getElementById(id);
    if (button && !button.disabled) button.click();
  };
  const mod = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
  const KEYS = [["run", mod, "Enter"], ["stop", "Esc"], ["card", "Alt", "↑ ↓"], ["tokens", "← →"], ["cell", "← → ↑ ↓"],
    ["lock", "Enter"], ["zoom", "+ − 0"], ["scrub", "PgUp", "PgDn"], ["list", "?"]];
  const showKeys = () => {
    const dialog = make("dialog", { id: "keys", "aria-labelledby": "keys-title" }, make("h2", { id: "keys-title" }, say("keys")),
      make("dl", {}, ...KEYS.flatMap(([name, ...keys]) => [
        make("dt", {}, ...keys.flatMap((key, index) => [index ? " " : "", make("kbd", {}, key)])),
        make("dd", {}, say("keys." + name))])),
      make("button", { type: "button", onclick: () => dialog.close() }, say("keys.close")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };
  const isTyping = (node) => Boolean(node.closest("input:not([type=range], [type=radio], [type=checkbox]), textarea, select"));

  document.addEventListener("keydown", (event) => {
    if (document.getElementById("keys")) return;
    if (event.key === "?" && !isTyping(event.target)) {
      event.preventDefault();
      showKeys();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      press("run");
    } else if (event.key === "Escape" && !event.defaultPrevented) {
      press("stop");
    }
  }, true);

  // A button that opens and closes a part of the page.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open]"), part = button && document.getElementById(button.dataset.open);
    if (!part) return;
    const isOpen = part.classList.toggle("open");
    for (const other of document.querySelectorAll(`[data-open="${part.id}"]`)) other.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) part.querySelector("input, textarea").focus();
  });

  // A file out of [name, media type, content] as JSON; the empty text saves nothing.
  const save = (packed) => {
    if (!packed) return;
    const [name, type, content] = JSON.parse(packed), link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };

  // A text for the clipboard, the page's address in it. The outcome is written into the part `told`, beside what the
  // server writes there, and stands until the next press of a button.
  const copy = async (text, told) => {
    if (!text) return;
    const whole = text.replaceAll("%ORIGIN%", (location.origin + location.pathname).replace(/\/$/, ""));
    const outcome = make("div", { class: "copied" });
    try {
      await navigator.clipboard.writeText(whole);
      outcome.append(make("p", { class: "hint", role: "status" }, say("history.copied")));
    } catch {
      outcome.append(make("p", { class: "hint", role: "status" }, say("history.copy_failed")), make("pre", { tabindex: 0 }, whole));
    }
    document.querySelector(told).append(outcome);
    const next = (event) => {
      if (!event.target.closest("button, label")) return;
      outcome.remove();
      document.removeEventListener("click", next, true);
    };
    document.addEventListener("click", next, true);
  };

  if (mod === "⌘") document.documentElement.classList.add("mac");
  return { showKeys, kept, keep, greet, save, copy, speak, say, make, toggleTheme, onLanguage: (listener) => listeners.push(listener) };
})();
