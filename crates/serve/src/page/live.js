// A run's page as it goes: what changed is fetched anew when the stream says so, at most once a second.
"use strict";
const place = document.getElementById("run");
const live = document.getElementById("live");
if (place && live && "EventSource" in window) {
  const run = encodeURIComponent(place.dataset.run);
  let wanted = false;
  let fetching = false;
  let lost = null;
  const say = (text, stale) => {
    live.textContent = text;
    live.classList.toggle("stale", stale);
  };
  const away = () => {
    lost ??= now();
    say(`not reached since ${lost} UTC: what is shown is as it was then`, true);
  };
  const now = () => new Date().toISOString().slice(11, 19);
  // What a person has opened stays open, and what they fill in is not taken from them.
  const opened = () => [...place.querySelectorAll("details")].map((one) => one.open);
  const isBusy = () => place.querySelector("form input:checked, form :focus") !== null;
  const redraw = async () => {
    if (fetching || isBusy()) return;
    fetching = true;
    wanted = false;
    try {
      const answer = await fetch(`/runs/${run}/part`, { headers: { accept: "text/html" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const before = opened();
      place.innerHTML = await answer.text();
      const after = place.querySelectorAll("details");
      if (after.length >= before.length) before.forEach((open, at) => { if (open) after[at].open = true; });
      const verdict = place.querySelector(".verdict strong");
      if (verdict) document.title = document.title.replace(/^[^·]*/, `${verdict.textContent} `);
      lost = null;
      say(`live, as of ${now()} UTC`, false);
    } catch (error) {
      wanted = true;
      away();
    }
    fetching = false;
  };
  setInterval(() => { if (wanted) redraw(); }, 1000);
  const stream = new EventSource(`/v1/runs/${run}/stream?after=${place.dataset.seq}`);
  stream.addEventListener("run", () => { wanted = true; });
  stream.addEventListener("unread", (event) => say(`the store does not answer: ${event.data}`, true));
  stream.onerror = away;
  stream.onopen = () => { wanted = true; };
}
