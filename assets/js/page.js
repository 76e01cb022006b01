// The page itself: language and theme kept in this browser, and the keyboard.
window.kev = (() => {
  const LANGUAGE = "kev-language", THEME = "kev-theme";

  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };

  const browserLanguage = () => navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en";

  // At load: the language chosen last, and its labels where Gradio painted those of another one.
  const greet = (spoken) => {
    const last = kept(LANGUAGE), name = last in window.kevCatalogue ? last : browserLanguage();
    document.documentElement.lang = name;
    const isPainted = name === navigator.language || (name === "en" && browserLanguage() === "en");
    return [name, ...(isPainted ? spoken.map(() => ({ __type__: "update" })) : speak(name, spoken))];
  };

  // One update for each component: its words in the language that was chosen.
  const speak = (name, spoken) => {
    const words = window.kevCatalogue[name];
    keep(LANGUAGE, name);
    document.documentElement.lang = name;
    document.title = words.title;
    return spoken.map((keys) => {
      const update = { __type__: "update" };
      for (const [property, key] of Object.entries(keys)) update[property] = words[key];
      return update;
    });
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
  return { greet, speak, toggleTheme };
})();
