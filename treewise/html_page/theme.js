"use strict";
// Light and dark: the reader's choice wins over the system's.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => {
    button.textContent = isDark() ? "light" : "dark";
    button.setAttribute("aria-pressed", String(isDark()));
    button.setAttribute("aria-label", `switch to the ${button.textContent} theme`);
  };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  system.addEventListener("change", name);
  name();
})();
