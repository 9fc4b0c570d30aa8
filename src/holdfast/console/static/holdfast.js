// Optional enhancements: local times, live updates, themes, values under the pointer in charts.
"use strict";

// The server writes times in UTC; show them in the reader's time zone.
const long = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const exact = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const dayOnly = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const timeForms = { clock: short, seconds: exact, day: dayOnly };
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.valueOf())) continue;
    time.title = time.dateTime;
    time.textContent = (timeForms[time.dataset.form] ?? long).format(moment);
  }
  for (const mark of root.querySelectorAll("text[data-time]")) mark.textContent = (timeForms[mark.dataset.form] ?? short).format(new Date(mark.dataset.time));
}

// Live updates: when the server reports a change, fetch the page again and replace its live parts.
const live = document.getElementById("live");
const lost = document.getElementById("lost");
const ANSWER_MS = 10000;
let isLive = true, isBusy = false, isStale = false;

function isInUse(part) {
  const focused = document.activeElement;
  if (focused && focused !== document.body && part.contains(focused)) {
    return focused.matches("input, select, textarea") || focused.matches(":focus-visible");
  }
  const selection = getSelection();
  return !selection.isCollapsed && part.contains(selection.anchorNode);
}

function replacePart(part, fresh) {
  const opened = new Set([...part.querySelectorAll("details[open]")].map((each) => each.id));
  for (const each of fresh.querySelectorAll("details")) if (opened.has(each.id)) each.open = true;
  part.replaceWith(fresh);
}

// Warn that the page may be out of date; an empty text hides the warning.
function showWarning(text) {
  lost.hidden = !text;
  if (text && lost.textContent !== text) lost.textContent = text;
  nameLive();
}

// The button says whether updates arrive, not only whether they are wanted.
function nameLive() {
  const isLost = isLive && !lost.hidden;
  live.classList.toggle("lost-live", isLost);
  live.textContent = isLost ? "Not live" : isLive ? "Live" : "Live off";
}

async function refresh() {
  if (isBusy || !isLive || document.hidden) { isStale = true; return; }
  isBusy = true; isStale = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.redirected) { showWarning("You are signed out. Reload the page to sign in. This page may be out of date."); return; }
    if (!answer.ok) { if (answer.status >= 500) showWarning("The server cannot render this page right now, retrying. This page may be out of date."); return; }
    if (document.querySelector("[data-passes]")) { location.reload(); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    localise(page);
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh && fresh.innerHTML !== part.dataset.seen && !isInUse(part)) {
        const seen = fresh.innerHTML;
        replacePart(part, document.adoptNode(fresh));
        fresh.dataset.seen = seen;
      }
    }
    showWarning("");
  } catch { showWarning("Connection lost, reconnecting. This page may be out of date."); } finally { isBusy = false; }
}

// Browsers allow six connections per server for all tabs together, so only a visible tab holds one.
let stream = null, again = 0, heardAt = 0;
function connect() {
  disconnect();
  if (document.hidden) return;
  heardAt = performance.now();
  stream = new EventSource("/live");
  stream.addEventListener("changed", () => { heardAt = performance.now(); refresh(); });
  stream.addEventListener("hello", () => { heardAt = performance.now(); if (isStale || !lost.hidden) refresh(); });
  stream.addEventListener("error", () => {
    refresh();
    // Refused, not just interrupted: too many pages are live. Refresh without the stream, and retry it later.
    if (stream?.readyState === EventSource.CLOSED) again = setTimeout(connect, 5000);
  });
}
function disconnect() {
  clearTimeout(again);
  stream?.close();
  stream = null;
}

if (document.querySelector("[data-live]") && window.EventSource) {
  live.hidden = false;
  live.addEventListener("click", () => {
    isLive = !isLive;
    live.setAttribute("aria-pressed", String(isLive));
    nameLive();
    if (isLive) refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { isStale = true; disconnect(); } else connect();
  });
  // The server reports at least every five seconds. Silence without an error: it hangs, or the network drops packets.
  setInterval(() => { if (stream && performance.now() - heardAt > 3 * 5000) refresh(); }, 5000);
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => { if (event.persisted) { isStale = true; connect(); } });
  connect();
}

// An error page reloads until the page can be rendered.
if (document.querySelector("[data-passes]")) setInterval(refresh, 3000);

// On a narrow screen the navigation scrolls: bring the current page into view.
const here = document.querySelector(".top nav [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;

// Themes: the system's, unless the reader chose one.
const theme = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const current = () => document.documentElement.dataset.theme || (system.matches ? "dark" : "light");
function nameTheme() { theme.textContent = current() === "dark" ? "Light" : "Dark"; theme.setAttribute("aria-label", `Use the ${theme.textContent.toLowerCase()} theme`); }
theme.hidden = false;
nameTheme();
system.addEventListener("change", nameTheme);
theme.addEventListener("click", () => {
  const chosen = current() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try { localStorage.setItem("theme", chosen); } catch { /* applies to this page only */ }
  nameTheme();
});

// Charts: show the values under the pointer.
const forms = { workers: String, pending: String, cpu: (value) => `${Math.round(value * 100)}%` };
document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest?.(".lanes");
  if (!chart) return;
  const box = chart.querySelector("svg").getBoundingClientRect();
  const x = (event.clientX - box.left) * 1000 / box.width;
  const readings = JSON.parse(chart.dataset.readings);
  if (!readings.length || x < 0 || x > 1000) return;
  const found = readings.reduce((best, each) => Math.abs(each[1] - x) < Math.abs(best[1] - x) ? each : best);
  const values = { workers: found[2], pending: found[3], cpu: found[4] };
  for (const cursor of chart.querySelectorAll(".cursor")) {
    cursor.setAttribute("x1", found[1]); cursor.setAttribute("x2", found[1]); cursor.setAttribute("visibility", "visible");
  }
  for (const value of chart.querySelectorAll(".value")) {
    value.dataset.last ??= value.textContent;
    const seen = values[value.dataset.attribute];
    value.textContent = seen === null ? "—" : forms[value.dataset.attribute](seen);
  }
  const caption = chart.querySelector("figcaption");
  let at = caption.querySelector(".reading");
  if (!at) { at = document.createElement("span"); at.className = "reading"; caption.append(at); }
  at.textContent = long.format(new Date(found[0]));
});
document.addEventListener("pointerout", (event) => {
  const chart = event.target.closest?.(".lanes");
  if (!chart || chart.contains(event.relatedTarget)) return;
  for (const cursor of chart.querySelectorAll(".cursor")) cursor.setAttribute("visibility", "hidden");
  for (const value of chart.querySelectorAll(".value")) if (value.dataset.last !== undefined) value.textContent = value.dataset.last;
  chart.querySelector(".reading")?.remove();
});

localise(document);
