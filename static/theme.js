// The theme is set before the first paint: this script blocks, so it is small.
"use strict";

{
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("theme") ?? "system";
    } catch {
      return "system"; // storage may be closed to us
    }
  };
  const show = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  show(stored());
  document.addEventListener("DOMContentLoaded", () => {
    for (const select of document.querySelectorAll("select[data-theme-choice]")) select.value = stored();
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches("select[data-theme-choice]")) return;
    try {
      localStorage.setItem("theme", event.target.value);
    } catch {
      // It holds for this page then.
    }
    show(event.target.value);
  });
  // Another tab changed it.
  addEventListener("storage", (event) => {
    if (event.key === "theme") show(event.newValue);
  });
}
