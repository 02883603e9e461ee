// What the pages do beyond HTML: local times as hints, charts, keys, and saying when they are not live any more.
(() => {
  "use strict";
  const body = document.body;
  const LOST_MS = 20000;
  let lastTick = Date.now();

  // One for all times of a page: to make one takes longer than to format a hundred times.
  const format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "short", timeStyle: "medium" });
  function localTimes(root) {
    for (const each of root.querySelectorAll("time[data-ms]")) {
      const at = new Date(Number(each.dataset.ms));
      if (!isNaN(at)) each.title = format.format(at);
    }
  }

  // On a narrow screen a row is a card, in which each cell says what it is.
  function labels(root) {
    for (const table of root.querySelectorAll(".scroll table")) {
      const heads = [...table.querySelectorAll("thead th")].map((each) => each.textContent.trim());
      for (const row of table.tBodies[0]?.rows ?? []) {
        [...row.cells].forEach((cell, at) => { if (cell.tagName === "TD" && cell.colSpan === 1 && heads[at]) cell.dataset.label = heads[at]; });
      }
    }
  }

  // Charts are drawn after the rest is painted, and only pages that have some load what draws them.
  let plots = null;
  function loadPlots() {
    plots = document.createElement("script");
    plots.src = body.dataset.plots;
    plots.addEventListener("load", () => charts(document));
    requestAnimationFrame(() => setTimeout(() => document.head.append(plots)));
  }

  // Axes: figures from 0 on, in few characters; times in UTC, as everywhere.
  const short = new Intl.NumberFormat(document.documentElement.lang, { notation: "compact", maximumFractionDigits: 2 });
  const clock = (time, step) => new Date(time * 1000).toISOString().slice(11, step < 60 ? 19 : 16);
  const scales = { y: { range: (plot, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] } };

  const drawn = new WeakMap();
  function charts(root) {
    const boxes = root.querySelectorAll(".chart[data-chart]");
    if (!boxes.length) return;
    if (!window.uPlot) { if (!plots) loadPlots(); return; }
    const colours = getComputedStyle(document.documentElement);
    for (const box of boxes) {
      if (drawn.get(box) === box.dataset.chart && box.firstChild) continue;
      drawn.set(box, box.dataset.chart);
      const data = JSON.parse(box.dataset.chart);
      const ink = colours.getPropertyValue("--ink").trim();
      const axis = { stroke: ink, grid: { stroke: colours.getPropertyValue("--line").trim(), width: 1 } };
      const strokes = [colours.getPropertyValue("--main").trim(), colours.getPropertyValue("--second").trim()];
      box.replaceChildren();
      new uPlot({
        width: Math.max(240, box.clientWidth), height: 160, padding: [null, 28, null, null], cursor: { y: false },
        scales, tzDate: (time) => uPlot.tzDate(new Date(time * 1000), "Etc/UTC"),
        series: [{ value: (plot, time) => (time === null ? "" : new Date(time * 1000).toISOString()) }, ...data.names.map((name, i) => ({ label: name, stroke: strokes[i % 2], width: 1.5, spanGaps: false }))],
        axes: [
          { ...axis, space: 72, values: (plot, times, at, space, step) => times.map((time) => clock(time, step)) },
          { ...axis, size: 56, values: (plot, values) => values.map((value) => short.format(value)) },
        ],
      }, [data.times, ...data.values], box);
    }
  }

  function age(isLive, at) {
    const shown = document.getElementById("age");
    if (!shown) return;
    shown.classList.toggle("lost", !isLive);
    shown.firstChild.textContent = (isLive ? shown.dataset.live : shown.dataset.lost) + " ";
    const time = shown.querySelector("time");
    if (at && time) { time.dataset.ms = at; time.textContent = new Date(Number(at)).toISOString(); localTimes(shown); }
  }

  function refresh() {
    localTimes(document);
    labels(document);
    charts(document);
  }

  document.addEventListener("htmx:after:swap", refresh);
  document.addEventListener("htmx:after:settle", refresh);
  document.addEventListener("tick", (event) => { lastTick = Date.now(); age(true, event.detail.data); });
  document.addEventListener("htmx:sse:error", () => age(false));
  document.addEventListener("htmx:sse:close", () => age(false));
  if (document.getElementById("live")) {
    document.addEventListener("htmx:sse:before:connection", (event) => { if (event.detail.connection.attempt > 0) age(false); });
    setInterval(() => { if (Date.now() - lastTick > LOST_MS) age(false); }, 2000);
  }

  // Names that were opened are offered again.
  function recent() {
    const list = document.getElementById("recent");
    if (!list) return;
    let known = [];
    try { known = JSON.parse(localStorage.getItem("recent") || "[]"); } catch { known = []; }
    const here = location.pathname.slice(new URL(body.dataset.base, location).pathname.length).split("/");
    if (["topics", "groups"].includes(here[0]) && here[1]) {
      const name = decodeURIComponent(here[1]);
      known = [name, ...known.filter((each) => each !== name)].slice(0, 20);
      localStorage.setItem("recent", JSON.stringify(known));
    }
    list.replaceChildren(...known.map((name) => { const option = document.createElement("option"); option.value = name; return option; }));
  }

  // Keys
  let afterG = false;
  const keysOn = document.getElementById("keys-on");
  if (keysOn) {
    keysOn.checked = localStorage.getItem("keys") !== "off";
    keysOn.addEventListener("change", () => localStorage.setItem("keys", keysOn.checked ? "on" : "off"));
  }
  const rows = () => [...document.querySelectorAll("[data-row] a[href]")].filter((link, i, all) => all.findIndex((other) => other.closest("[data-row]") === link.closest("[data-row]")) === i);
  function step(by) {
    const links = rows();
    const now = links.indexOf(document.activeElement);
    const next = links[Math.max(0, Math.min(links.length - 1, now < 0 ? (by > 0 ? 0 : links.length - 1) : now + by))];
    if (next) next.focus();
  }
  document.addEventListener("keydown", (event) => {
    const find = document.getElementById("find");
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && find) { event.preventDefault(); find.focus(); find.select(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
    if (event.key === "Escape" && inField) { event.target.blur(); return; }
    if (inField || (keysOn && !keysOn.checked && event.key !== "?")) return;
    if (document.getElementById("keys")?.open) return;
    if (afterG) {
      afterG = false;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { afterG = true; setTimeout(() => { afterG = false; }, 1500); }
    else if (event.key === "/" && find) { event.preventDefault(); find.focus(); find.select(); }
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "." && document.getElementById("pause")) document.getElementById("pause").click();
    else if (event.key === "?") document.getElementById("keys").showModal();
    else if (event.key === "Escape") history.back();
  });

  // Dead letters that are ticked go into one field.
  const ids = document.getElementById("ids");
  if (ids) document.addEventListener("change", () => {
    const chosen = [...document.querySelectorAll("[data-letter]:checked")].map((box) => box.dataset.letter);
    ids.value = chosen.join(" ");
    document.getElementById("resend-chosen").disabled = !chosen.length;
  });

  refresh();
  recent();
})();
