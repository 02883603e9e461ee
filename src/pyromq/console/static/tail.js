// The live tail: rows come as JSON and are put in as text, never as HTML.
(() => {
  "use strict";
  const KEPT = 500;
  const status = document.getElementById("tail");
  const rows = document.getElementById("rows");
  const pause = document.getElementById("pause");
  let isPaused = false;
  let waiting = [];

  function cell(tag, text, kind) {
    const made = document.createElement(tag);
    made.textContent = text ?? "–";
    if (kind) made.className = kind;
    return made;
  }

  function row(each) {
    const made = document.createElement("tr");
    made.dataset.row = "";
    const head = document.createElement("th");
    head.scope = "row";
    const link = document.createElement("a");
    link.href = [status.dataset.topics, encodeURIComponent(each.topic), "at", encodeURIComponent(each.broker), each.queue, each.offset].join("/");
    link.textContent = new Date(each.stored_ms).toISOString();
    head.append(link);
    made.append(head);
    if (status.dataset.several) made.append(cell("td", each.topic));
    made.append(cell("td", `${each.broker}:${each.queue}`), cell("td", each.offset, "n"), cell("td", each.tags), cell("td", each.keys), cell("td", `${each.size} B`, "n"), cell("td", each.body + (each.is_cut ? "…" : ""), "body"));
    return made;
  }

  function show(batch) {
    const text = status.dataset.counts.replace("{seen}", batch.seen).replace("{matched}", batch.matched).replace("{skipped}", batch.skipped);
    status.textContent = batch.problem ? `${text} ${batch.problem}` : text;
    for (const each of batch.rows) rows.prepend(row(each));
    while (rows.children.length > KEPT) rows.lastElementChild.remove();
  }

  let skipped = 0;
  status.addEventListener("rows", (event) => {
    const batch = JSON.parse(event.detail.data);
    skipped += batch.skipped;
    batch.skipped = skipped;
    if (isPaused) { waiting.push(batch); if (waiting.length > KEPT) { skipped += waiting.shift().rows.length; } return; }
    show(batch);
  });
  document.addEventListener("htmx:sse:error", () => { status.textContent = status.dataset.lost; });

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? pause.dataset.resume : pause.dataset.pause;
    if (!isPaused) { waiting.forEach(show); waiting = []; }
  });
})();
