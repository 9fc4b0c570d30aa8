// Runs before the page is drawn: applies the chosen theme, or else the system's.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system's theme applies */ }
