// A page as it goes. It is whole without this script: parts of it are fetched anew when there is news, and only those that differ.
"use strict";
const main = document.querySelector("[data-parts]");
const live = document.getElementById("live");
if (main && live) {
  document.documentElement.classList.add("live");
  const away = document.getElementById("away");
  const news = document.getElementById("news");
  // As of when what is shown is; what stands in the way of newer.
  const shown = { at: new Date(live.dataset.at), seq: main.dataset.seq, written: null, lost: null };
  const OFTEN = 1000;
  const SELDOM = main.dataset.stream ? 15000 : 3000;
  let wanted = false;
  let fetching = false;
  let asked = 0;

  const clock = (at) => at.toISOString().slice(11, 19);
  const length = (seconds) => {
    const of = (count, unit) => `${count} ${unit}`;
    if (seconds < 60) return of(Math.round(seconds), "s");
    if (seconds < 3600) return of(Math.round(seconds / 60), "min");
    if (seconds < 172800) return of((seconds / 3600).toFixed(1), "h");
    return of(Math.round(seconds / 86400), "days");
  };
  const relative = (at) => {
    const seconds = (at - Date.now()) / 1000;
    return seconds < 0 ? `${length(-seconds)} ago` : `in ${length(seconds)}`;
  };

  // Every second: how old it is, and how long it is until.
  const tick = () => {
    for (const span of document.querySelectorAll(".relative")) {
      const text = `(${relative(new Date(span.dataset.at))})`;
      if (span.textContent !== text) span.textContent = text;
    }
    const old = (Date.now() - shown.at) / 1000;
    const stale = shown.lost !== null || old > 45;
    const word = stale ? "not live" : "live";
    const event = shown.written ? `; event ${shown.seq}, written ${clock(shown.written)} (${relative(shown.written)})` : "";
    live.textContent = `${word}, as of ${clock(shown.at)} UTC (${length(old)} ago)${event}`;
    live.classList.toggle("stale", stale);
  };

  const lost = (why) => {
    shown.lost ??= new Date();
    const text = `What is shown is as of ${clock(shown.at)} UTC. Trying again.`;
    const place = away ?? main;
    let note = place.querySelector(".away");
    if (!note) {
      note = document.createElement("p");
      note.className = "away";
      note.setAttribute("role", "alert");
      place.prepend(note);
    }
    if (note.textContent !== `${why}. ${text}`) {
      const first = document.createElement("strong");
      first.textContent = `${why}. `;
      note.replaceChildren(first, text);
    }
    tick();
  };
  const found = () => {
    shown.lost = null;
    for (const note of document.querySelectorAll(".away")) note.remove();
  };

  // What a person has opened stays open, where they are they stay, and what they fill in is not taken from them.
  const FOCUSABLE = "a, button, input, select, summary, [tabindex]";
  const isBusy = (part) => part.querySelector("input:checked, input:focus, select:focus") !== null;
  const swap = (part, sent) => {
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const focused = part.contains(document.activeElement) ? [...part.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement) : -1;
    part.innerHTML = sent.html;
    part.dataset.digest = sent.digest;
    const now = part.querySelectorAll("details");
    if (now.length === open.length) open.forEach((was, at) => { if (was) now[at].open = true; });
    if (focused >= 0) part.querySelectorAll(FOCUSABLE)[focused]?.focus({ preventScroll: true });
  };
  const apply = (sent) => {
    const known = new Map([...document.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
    let before = null;
    for (const one of sent) {
      let part = known.get(one.name);
      known.delete(one.name);
      if (!part) {
        part = document.createElement("div");
        part.dataset.part = one.name;
        if (before) before.after(part); else main.append(part);
      }
      if (one.html !== undefined && part.dataset.digest !== one.digest) {
        if (isBusy(part)) {
          part.classList.add("behind");
        } else {
          part.classList.remove("behind");
          swap(part, one);
        }
      }
      before = part;
    }
    for (const gone of known.values()) gone.remove();
  };

  const address = () => {
    const query = new URLSearchParams(location.search);
    query.set("have", [...document.querySelectorAll("[data-digest]")].map((part) => part.dataset.digest).join("."));
    return `${main.dataset.parts}?${query}`;
  };
  const redraw = async () => {
    if (fetching) { wanted = true; return; }
    fetching = true;
    wanted = false;
    asked = Date.now();
    try {
      const answer = await fetch(address(), { headers: { accept: "application/json" }, signal: AbortSignal.timeout(20000) });
      if (answer.redirected || answer.status === 401) {
        lost("Your token has expired: log in again");
      } else if (!answer.ok) {
        const problem = await answer.json().catch(() => ({}));
        lost(answer.status === 503 ? `The store does not answer: ${problem.detail ?? ""}` : `${problem.title ?? "No answer"}: ${problem.detail ?? answer.status}`);
      } else {
        const now = await answer.json();
        performance.mark("redraw");
        const moved = now.title !== undefined && document.title !== now.title;
        apply(now.parts);
        if (now.states !== undefined) window.unitMap?.show(now.states);
        shown.at = new Date(now.at);
        if (now.seq !== undefined) {
          shown.seq = now.seq;
          shown.written = new Date(now.written);
        }
        if (moved) {
          document.title = now.title;
          if (news) news.textContent = `${now.title}: ${now.why}`;
        }
        found();
        tick();
        performance.measure("redraw", "redraw");
      }
    } catch {
      lost("The server is not reached");
    }
    fetching = false;
  };

  // Without a second to itself an event waits for the next one.
  setInterval(() => {
    tick();
    if (wanted || Date.now() - asked > (shown.lost ? OFTEN * 2 : SELDOM)) redraw();
  }, OFTEN);

  if (main.dataset.stream && "EventSource" in window) {
    let stream = null;
    const listen = () => {
      stream = new EventSource(`${main.dataset.stream}?after=${shown.seq}`);
      stream.addEventListener("run", () => { wanted = true; });
      stream.addEventListener("unread", (event) => lost(`The store does not answer: ${event.data}`));
      stream.onopen = () => { wanted = true; };
      // The browser comes again by itself, unless it was told no.
      stream.onerror = () => {
        wanted = true;
        if (stream.readyState === EventSource.CLOSED) setTimeout(listen, OFTEN * 2);
      };
    };
    listen();
  }

  // The filters of the journal and the unit that is explained stand in the address: it can be handed on.
  const go = (change) => {
    const url = new URL(location.href);
    change(url.searchParams);
    for (const [name, value] of [...url.searchParams]) if (value === "") url.searchParams.delete(name);
    history.replaceState(null, "", url);
    return redraw();
  };
  const explain = async (unit) => {
    await go((query) => query.set("unit", unit));
    const heading = document.querySelector("#unit");
    if (heading) heading.focus();
  };
  window.explain = explain;
  let opener = null;
  const close = async () => {
    await go((query) => query.delete("unit"));
    const back = opener?.isConnected ? opener : opener?.dataset.unit && document.querySelector(`a[data-unit="${CSS.escape(opener.dataset.unit)}"]`);
    (back || document.getElementById("map"))?.focus?.();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-unit]");
    const page = event.target.closest?.(".pages a");
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (link) {
      event.preventDefault();
      if (link.dataset.unit === "") close();
      else { opener = link; explain(link.dataset.unit); }
    } else if (page) {
      event.preventDefault();
      const before = new URL(page.href).searchParams.get("before") ?? "";
      go((query) => query.set("before", before)).then(() => document.getElementById("journal").scrollIntoView());
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.querySelector(".unit")) close();
  });
  const filters = document.getElementById("filters");
  if (filters) {
    let typing = null;
    const filter = () => go((query) => {
      for (const [name, value] of new FormData(filters)) if (name !== "unit") query.set(name, value);
      query.delete("before");
    });
    filters.addEventListener("submit", (event) => { event.preventDefault(); filter(); });
    filters.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(filter, 200); });
  }
  document.getElementById("find")?.addEventListener("submit", (event) => {
    event.preventDefault();
    opener = event.target.elements.unit;
    explain(opener.value.trim());
  });
  tick();
  redraw();
}
