// Before the page is drawn: the theme that was chosen here, if one was. Without it, the system's.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system's theme it is */ }
