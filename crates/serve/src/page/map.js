// The map of the units. Few are links that the page has already; many are drawn here, and only those that change are drawn anew.
"use strict";
(() => {
  const place = document.getElementById("map");
  if (!place) return;
  const GLYPHS = ["·", "○", "▼", "◆", "●", "✗", "◀", "–"];
  const CLASSES = ["waiting", "preparing", "down", "verifying", "done", "failed", "rolled-back", "skipped"];
  const WORDS = ["waiting", "preparing", "down", "verifying", "done", "failed", "rolled back", "skipped"];

  // Arrows go from unit to unit; one of them is where Tab comes to.
  const steps = { ArrowRight: 1, ArrowLeft: -1 };

  if (!place.dataset.run) {
    const cells = () => [...place.querySelectorAll("a[data-unit]")];
    const rove = (to) => {
      for (const cell of cells()) cell.tabIndex = cell === to ? 0 : -1;
    };
    rove(cells()[0]);
    place.addEventListener("focusin", (event) => { if (event.target.dataset.unit) rove(event.target); });
    place.addEventListener("keydown", (event) => {
      const all = cells();
      const at = all.indexOf(document.activeElement);
      if (at < 0) return;
      const here = all[at].getBoundingClientRect();
      const row = (down) => all
        .map((cell) => [cell, cell.getBoundingClientRect()])
        .filter(([, box]) => (down ? box.top > here.top + 4 : box.top < here.top - 4))
        .sort(([, a], [, b]) => Math.abs(a.top - here.top) - Math.abs(b.top - here.top) || Math.abs(a.left - here.left) - Math.abs(b.left - here.left))[0]?.[0];
      const to = {
        ArrowRight: all[at + 1], ArrowLeft: all[at - 1], ArrowDown: row(true), ArrowUp: row(false), Home: all[0], End: all[all.length - 1],
      }[event.key];
      if (to) { event.preventDefault(); to.focus(); }
    });
    window.unitMap = {
      show(states) {
        const all = cells();
        if (all.length !== states.length) { location.reload(); return; }
        all.forEach((cell, at) => {
          const state = Number(states[at]);
          if (cell.className.split(" ")[0] === CLASSES[state]) return;
          cell.className = `${CLASSES[state]} changed`;
          cell.firstElementChild.textContent = GLYPHS[state];
          cell.title = `${cell.dataset.unit} is ${WORDS[state]}`;
          cell.setAttribute("aria-label", `${cell.dataset.unit}, ${WORDS[state]}`);
        });
      },
    };
    return;
  }

  // Many units: cells on a grid, a domain after another, hosts apart by a gap.
  const SIZE = 11;
  const GAP = 5;
  const LABEL = 18;
  const canvas = document.createElement("canvas");
  const paint = canvas.getContext("2d");
  const cursor = document.createElement("p");
  cursor.className = "cursor quiet";
  cursor.setAttribute("aria-live", "polite");
  const board = document.createElement("div");
  board.className = "board";
  board.tabIndex = 0;
  board.setAttribute("role", "application");
  board.append(canvas);
  place.append(board, cursor);

  let groups = null;
  let names = [];
  let states = place.dataset.states;
  let spots = new Float32Array(0);
  let hosts = [];
  let labels = [];
  let sprites = [];
  let at = -1;
  let colours = {};

  const read = () => {
    const of = getComputedStyle(document.documentElement);
    const colour = (name) => of.getPropertyValue(name).trim();
    colours = {
      paper: colour("--paper"), soft: colour("--soft"), ink: colour("--ink"), line: colour("--line"), wash: colour("--wash"),
      states: ["--soft", "--prepare", "--down", "--gate", "--good", "--failed", "--back", "--bad"].map(colour),
    };
  };

  // A shape for each state, so that nobody needs the colours.
  const shape = (on, state) => {
    const m = SIZE / 2;
    const r = SIZE / 2 - 1.5;
    on.fillStyle = on.strokeStyle = colours.states[state];
    on.lineWidth = 1.6;
    on.beginPath();
    const path = (points) => points.forEach(([x, y], n) => (n ? on.lineTo(x, y) : on.moveTo(x, y)));
    switch (state) {
      case 0: on.arc(m, m, 1.4, 0, 7); on.fill(); break;
      case 1: on.arc(m, m, r - 0.6, 0, 7); on.stroke(); break;
      case 2: path([[0.5, 1], [SIZE - 0.5, 1], [m, SIZE - 0.5]]); on.fill(); break;
      case 3: path([[m, 0.5], [SIZE - 0.5, m], [m, SIZE - 0.5], [0.5, m]]); on.fill(); break;
      case 4: on.arc(m, m, r, 0, 7); on.fill(); break;
      case 5: path([[1.5, 1.5], [SIZE - 1.5, SIZE - 1.5]]); path([[SIZE - 1.5, 1.5], [1.5, SIZE - 1.5]]); on.lineWidth = 2.2; on.stroke(); break;
      case 6: path([[SIZE - 1, 0.5], [SIZE - 1, SIZE - 0.5], [1, m]]); on.fill(); break;
      default: path([[1.5, m], [SIZE - 1.5, m]]); on.lineWidth = 2.2; on.stroke();
    }
  };
  const scale = () => Math.min(window.devicePixelRatio || 1, 2);
  const draw = (unit) => {
    const x = spots[2 * unit];
    const y = spots[2 * unit + 1];
    paint.fillStyle = unit === at ? colours.ink : colours.paper;
    paint.fillRect(x - 1, y - 1, SIZE + 2, SIZE + 2);
    if (unit === at) {
      paint.fillStyle = colours.paper;
      paint.fillRect(x, y, SIZE, SIZE);
    }
    paint.drawImage(sprites[Number(states[unit])], x, y, SIZE, SIZE);
  };

  // Where each unit stands, for the width that there is.
  const lay = () => {
    const width = Math.max(board.clientWidth, 120);
    spots = new Float32Array(2 * names.length);
    hosts = new Int32Array(names.length);
    labels = [];
    const step = SIZE + 2;
    let y = 2;
    let unit = 0;
    let host = 0;
    for (const [name, of] of groups) {
      if (name) { labels.push([name, y]); y += LABEL; }
      let x = 2;
      for (const [, units] of of) {
        // A host stays together where it fits into a row.
        if (x > 2 && x + Math.min(units.length, 8) * step > width) { x = 2; y += step; }
        for (let n = 0; n < units.length; n += 1) {
          if (x + step > width) { x = 2; y += step; }
          spots[2 * unit] = x;
          spots[2 * unit + 1] = y;
          hosts[unit] = host;
          x += step;
          unit += 1;
        }
        x += GAP;
        host += 1;
      }
      y += step + 4;
    }
    const high = Math.ceil(y);
    const ratio = scale();
    canvas.width = width * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${high}px`;
    paint.scale(ratio, ratio);
    sprites = GLYPHS.map((_, state) => {
      const sprite = document.createElement("canvas");
      sprite.width = sprite.height = SIZE * ratio;
      const on = sprite.getContext("2d");
      on.scale(ratio, ratio);
      shape(on, state);
      return sprite;
    });
  };
  const whole = () => {
    paint.fillStyle = colours.paper;
    paint.fillRect(0, 0, canvas.width, canvas.height);
    paint.fillStyle = colours.soft;
    paint.font = "600 12px system-ui, sans-serif";
    for (const [name, y] of labels) paint.fillText(name, 2, y + LABEL - 6);
    for (let unit = 0; unit < names.length; unit += 1) draw(unit);
  };
  const fresh = () => { read(); lay(); whole(); };

  const tell = () => {
    cursor.textContent = at < 0 ? "" : `${names[at]} is ${WORDS[Number(states[at])]}`;
  };
  const move = (to) => {
    if (to < 0 || to >= names.length || to === at) return;
    const before = at;
    at = to;
    if (before >= 0) draw(before);
    draw(at);
    tell();
    const box = canvas.getBoundingClientRect();
    const y = box.top + spots[2 * at + 1];
    if (y < 40 || y > innerHeight - 40) scrollBy(0, y - innerHeight / 2);
  };
  const nearest = (x, y) => {
    let best = -1;
    let least = Infinity;
    for (let unit = 0; unit < names.length; unit += 1) {
      const away = Math.abs(spots[2 * unit] + SIZE / 2 - x) + 3 * Math.abs(spots[2 * unit + 1] + SIZE / 2 - y);
      if (away < least) { least = away; best = unit; }
    }
    return best;
  };
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const unit = nearest(x, y);
    return unit >= 0 && Math.abs(spots[2 * unit] + SIZE / 2 - x) < SIZE && Math.abs(spots[2 * unit + 1] + SIZE / 2 - y) < SIZE ? unit : -1;
  };
  board.addEventListener("click", (event) => {
    const unit = under(event);
    if (unit < 0) return;
    move(unit);
    window.explain?.(names[unit]);
  });
  board.addEventListener("mousemove", (event) => {
    const unit = under(event);
    canvas.title = unit < 0 ? "" : `${names[unit]} is ${WORDS[Number(states[unit])]}`;
  });
  board.addEventListener("keydown", (event) => {
    const here = Math.max(at, 0);
    const step = SIZE + 2;
    const to = {
      ArrowRight: () => at + 1,
      ArrowLeft: () => at - 1,
      ArrowDown: () => below(here, step),
      ArrowUp: () => below(here, -step),
      Home: () => 0,
      End: () => names.length - 1,
    }[event.key];
    if (to) {
      event.preventDefault();
      move(Math.min(Math.max(to(), 0), names.length - 1));
    } else if (event.key === "Enter" && at >= 0) {
      event.preventDefault();
      window.explain?.(names[at]);
    }
  });
  // The nearest unit of the next row that there is in that direction.
  const below = (unit, by) => {
    const [x, y] = [spots[2 * unit], spots[2 * unit + 1]];
    let best = unit;
    let least = Infinity;
    for (let other = 0; other < names.length; other += 1) {
      const down = (spots[2 * other + 1] - y) * Math.sign(by);
      if (down < 4) continue;
      const away = down * 10 + Math.abs(spots[2 * other] - x);
      if (away < least) { least = away; best = other; }
    }
    return best;
  };
  const summary = () => {
    board.setAttribute("aria-label", `map of ${names.length} units; arrows move, Enter explains`);
  };

  const load = async () => {
    const answer = await fetch(`/runs/${encodeURIComponent(place.dataset.run)}/map`);
    if (!answer.ok) return;
    ({ groups } = await answer.json());
    names = groups.flatMap(([, of]) => of.flatMap(([, units]) => units));
    if (names.length !== states.length) return;
    summary();
    fresh();
    place.dataset.drawn = "yes";
  };
  window.unitMap = {
    show(now) {
      if (!groups || now.length !== names.length) {
        states = now;
        load();
        return;
      }
      const before = states;
      states = now;
      for (let unit = 0; unit < names.length; unit += 1) if (before[unit] !== now[unit]) draw(unit);
      if (at >= 0 && before[at] !== now[at]) tell();
    },
    // For whoever looks from outside: where a unit is drawn, and how it stands.
    spot: (name) => {
      const unit = names.indexOf(name);
      return unit < 0 ? null : { x: spots[2 * unit] + SIZE / 2, y: spots[2 * unit + 1] + SIZE / 2, state: WORDS[Number(states[unit])] };
    },
  };
  let wide = 0;
  new ResizeObserver(() => {
    if (groups && Math.abs(board.clientWidth - wide) > 1) { wide = board.clientWidth; fresh(); }
  }).observe(board);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (groups) fresh(); });
  load();
})();
