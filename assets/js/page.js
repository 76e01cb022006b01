// The page itself: language and theme kept in this browser, and the keyboard.
window.kev = (() => {
  const LANGUAGE = "kev-language", THEME = "kev-theme";

  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };

  const language = () => {
    const chosen = kept(LANGUAGE);
    if (chosen in window.kevCatalogue) return chosen;
    return navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en";
  };

  // One update for each component: its words in the language that was chosen.
  const speak = (name, spoken) => {
    const words = window.kevCatalogue[name];
    keep(LANGUAGE, name);
    document.documentElement.lang = name;
    document.title = words.title;
    const updates = spoken.map((keys) => {
      const update = { __type__: "update" };
      for (const [property, key] of Object.entries(keys)) update[property] = words[key];
      return update;
    });
    return updates;
  };

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
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      press("run");
    } else if (event.key === "Escape" && !event.defaultPrevented) {
      press("stop");
    }
  }, true);

  if (/Mac|iPhone|iPad/.test(navigator.platform)) document.documentElement.classList.add("mac");
  return { language, speak, toggleTheme };
})();
