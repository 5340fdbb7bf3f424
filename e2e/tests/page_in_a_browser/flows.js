// What a person does with the page.
"use strict";
const fs = require("node:fs");
const { URL, RUN, ask, check, main, picture, wait } = require("./browser.js");

const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const text = (page, of) => page.locator(of).innerText();

// The page forbids scripts from elsewhere, so axe is brought in by the debugger, which is above that.
const axe = async (page, where) => {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: AXE });
  const found = await session.send("Runtime.evaluate", {
    expression: "axe.run(document, { resultTypes: ['violations'] }).then((found) => JSON.stringify(found.violations.map((one) => ({ id: one.id, help: one.help, at: one.nodes.slice(0, 4).map((node) => node.target.join(' ') + ' ' + node.failureSummary) }))))",
    awaitPromise: true,
    returnByValue: true,
  });
  const violations = JSON.parse(found.result.value);
  check(violations.length === 0, `axe-core on ${where}: ${JSON.stringify(violations, null, 1)}`);
};

const flows = {
  async the_list_shows_every_cluster({ fresh }) {
    const page = await fresh();
    await page.goto(URL);
    const cards = await page.locator("article.cluster").allInnerTexts();
    check(cards.length === 3, `three clusters, not ${cards.length}`);
    // What needs a person comes first, what is over last.
    check(/NEEDS YOU/.test(cards[0]), cards[0]);
    check(/ENDED/.test(cards[2]), cards[2]);
    await page.getByRole("link", { name: "demo", exact: true }).click();
    await page.waitForURL(RUN);
    check((await page.title()).startsWith("RUNNING"), await page.title());
  },

  async two_seconds_tell_what_is_down_and_why({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    const glance = page.locator(".glance");
    for (const word of ["Down", "Why", "Waits for", "Until", "osd."]) check((await glance.innerText()).includes(word), `${word} is missing: ${await glance.innerText()}`);
    const box = await glance.boundingBox();
    check(box.y + box.height < 900, "all of it is seen without scrolling");
    await wait("the age of what is shown", async () => /^live, as of \d\d:\d\d:\d\d UTC \(\d+ s ago\); event \d+/.test(await text(page, "#live")));
  },

  async without_a_script_it_is_all_there({ fresh }) {
    const page = await fresh({ javaScriptEnabled: false });
    await page.goto(RUN);
    check(/as of \d{4}-/.test(await text(page, "#live")), "it says as of when it is");
    check((await page.locator("#map a[data-unit]").count()) > 60, "each unit is a link");
    await page.locator('#map a[data-unit="osd.0"]').click();
    check(/osd\.0 is /.test(await text(page, ".unit")), "a click explains");
    await page.locator("#filters select").selectOption("people");
    await page.getByRole("button", { name: "Filter" }).click();
    check(/^0 of \d+ lines/.test(await text(page, "#journal [role=status]")), await text(page, "#journal [role=status]"));
    check(/osd\.0 is /.test(await text(page, ".unit")), "the unit is explained still");
    await page.goto(`${RUN}?unit=no-such`);
    check(/No plan of this run names it/.test(await text(page, ".unit")), "an unknown unit is told");
    await picture(page, "without-script");
  },

  async filters_of_the_journal({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    const count = async () => (await page.locator("#journal tbody tr").count());
    const all = await count();
    await page.locator("#filters input[type=search]").fill("osd.59");
    await wait("fewer lines", async () => (await count()) < all && (await count()) > 0);
    for (const row of await page.locator("#journal tbody tr").allInnerTexts()) check(row.includes("osd.59"), row);
    await wait("the filter stands in the address", () => page.url().includes("q=osd.59"));
    await page.reload();
    check((await page.locator("#filters input[type=search]").inputValue()) === "osd.59", "and is kept");
    await page.locator("#filters input[type=search]").fill("");
    await wait("all lines", async () => (await count()) === all);
  },

  async explain_on_a_click_and_by_keyboard({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
    await page.locator('#map a[data-unit="osd.59"]').click();
    await wait("the explanation", async () => /osd\.59 is done/.test(await text(page, ".unit")));
    await wait("focus goes to it", () => page.evaluate(() => document.activeElement.id === "unit"));
    await page.keyboard.press("Escape");
    await wait("it is closed", async () => (await page.locator(".unit").count()) === 0);
    await wait("focus goes back", () => page.evaluate(() => document.activeElement.dataset.unit === "osd.59"));
    // One stop for Tab in the map, and arrows in it.
    check((await page.locator('#map a[tabindex="0"]').count()) === 1, "one unit is where Tab comes to");
    await page.keyboard.press("ArrowLeft");
    await wait("an arrow goes on", () => page.evaluate(() => document.activeElement.dataset.unit !== "osd.59"));
    const next = await page.evaluate(() => document.activeElement.dataset.unit);
    check(next && next !== "osd.59", `an arrow goes on: ${next}`);
    await page.keyboard.press("Enter");
    await wait("the next is explained", async () => (await text(page, ".unit h3")).includes(next));
    await page.locator("#find input").fill("mgr.a");
    await page.keyboard.press("Enter");
    await wait("the one that was typed", async () => /mgr\.a is/.test(await text(page, ".unit")));
  },

  async every_control_is_reached_by_tab({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
    const seen = new Set();
    for (let stop = 0; stop < 80; stop += 1) {
      await page.keyboard.press("Tab");
      const here = await page.evaluate(() => {
        const one = document.activeElement;
        const look = getComputedStyle(one);
        return { name: one.textContent.trim() || one.name || one.className, ring: look.outlineStyle !== "none", gone: one === document.body };
      });
      if (here.gone) break;
      check(here.ring, `${here.name} shows that it has the focus`);
      seen.add(here.name);
    }
    for (const name of ["To the current state", "all clusters", "Pause", "Resume", "End it", "Explain", "Filter"]) check(seen.has(name), `${name} is reached; seen: ${[...seen].join(", ")}`);
  },

  async pause_resume_and_approve({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    check(/Starts no new wave.*units? started, is finished first/s.test(await text(page, ".controls")), "Pause says what it costs");
    await page.getByRole("button", { name: "Pause" }).click();
    await wait("it was asked for", async () => (await ask("asked")) === "pause");
    check(/pause was requested by .*, and is pending/.test(await text(page, ".asked")), "the page says so");
    await page.getByRole("button", { name: "Resume" }).click();
    await wait("it was asked for", async () => (await ask("asked")) === "pause,resume");
    await page.locator("summary", { hasText: "Approve" }).click();
    const form = page.locator("form", { hasText: "require-osd-release" });
    check(/Cannot be undone: no OSD older than 20.2.1 may join any more/.test(await form.innerText()), await form.innerText());
    await form.getByRole("button", { name: "Approve" }).click();
    check((await ask("asked")) === "pause,resume", "without a word that the cost was read nothing is asked");
    await form.getByRole("checkbox").check();
    await form.getByRole("button", { name: "Approve" }).click();
    await wait("it was asked for", async () => (await ask("asked")) === "pause,resume,approve require-osd-release");
    await wait("the page says so", async () => (await page.locator(".asked").count()) === 3);
  },

  async what_is_written_is_shown({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
    const before = Number(await page.locator("#run").getAttribute("data-seq"));
    await page.locator("details.wave").first().locator("summary").click();
    // What a person fills in is not taken from them, and they are told that it is old.
    await page.locator("summary", { hasText: "End it" }).click();
    await page.locator("form", { hasText: "Abort" }).getByRole("checkbox").check();
    const verifying = () => page.locator("#map a.verifying").count();
    let wrote = 0;
    // Event by event, up to where the units that were changed wait for their gates.
    const waits = async () => /Waits for\s.*pgs-clean/s.test(await text(page, ".glance"));
    while ((await verifying()) < 4 || !(await waits())) {
      check(wrote < 40, "the map does not follow, or nothing is waited for");
      await ask("write 1");
      wrote += 1;
      await wait("the newest event", async () => (await text(page, "#live")).includes(`event ${before + wrote},`));
    }
    check(/Until\s+\d\d:\d\d:\d\d UTC \((in )?\d+ (s|min)/.test(await text(page, ".glance")), await text(page, ".glance"));
    check(await page.locator("details.wave").first().evaluate((one) => one.open), "what was opened stays open");
    check(await page.locator("form", { hasText: "Abort" }).getByRole("checkbox").isChecked(), "what was ticked stays ticked");
    const lines = await page.locator("#journal tbody tr").first().innerText();
    check(/gates/.test(lines), `the newest line comes first: ${lines}`);
    await page.reload();
    await picture(page, "glance", false);
  },

  async offline_and_back({ fresh, forward }) {
    const page = await fresh();
    await page.goto(RUN);
    await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
    const verdict = await text(page, ".verdict");
    await forward.cut();
    await wait("it says so", async () => /^The server is not reached\. What is shown is as of/.test(await text(page, ".away")));
    check((await text(page, "#live")).startsWith("not live"), await text(page, "#live"));
    await wait("the last state is there", async () => (await text(page, ".verdict")) === verdict);
    await picture(page, "offline", false);
    await forward.listen();
    await ask("write 1");
    await wait("it is live again", async () => (await page.locator(".away").count()) === 0 && (await text(page, "#live")).startsWith("live"));
    await ask("write 1");
    const last = await page.evaluate(() => document.getElementById("live").textContent);
    await wait("events come again", async () => (await text(page, "#live")).match(/event (\d+)/)[1] > last.match(/event (\d+)/)[1] - 1);
  },

  async the_store_away({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
    const verdict = await text(page, ".verdict");
    await ask("lose");
    try {
      await wait("it says so", async () => /^The store does not answer/.test(await text(page, ".away")));
      check((await text(page, ".verdict")) === verdict, "the last state is there");
      // Who comes now sees the last state too, and so does who has no script.
      const late = await fresh({ javaScriptEnabled: false });
      const answer = await late.goto(RUN);
      check(answer.status() === 503, `${answer.status()}`);
      check(/The store does not answer.*What is shown is as of/s.test(await text(late, ".away")), await text(late, ".away"));
      check((await text(late, ".verdict")) === verdict, "the last state");
      const list = await late.goto(URL);
      check(list.status() === 503 && (await late.locator("article.cluster").count()) === 3, "and every cluster");
      await picture(late, "store-away", false);
    } finally {
      await ask("find");
    }
    await wait("it is live again", async () => (await page.locator(".away").count()) === 0);
  },

  async names_are_no_markup({ fresh }) {
    const page = await fresh();
    await page.goto(URL);
    await page.locator("article.cluster a").first().click();
    await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
    check((await page.locator("img").count()) === 0, "a host's name is no picture");
    check((await page.content()).includes("&lt;img src=x"), "and is shown as it is");
    await page.goto(`${RUN}?q=${encodeURIComponent('"><script>document.title=1</script>')}&unit=${encodeURIComponent("<b id=evil>")}&of=%22%3E&before=x`);
    check((await page.locator("#evil").count()) === 0, "nothing is reflected as markup");
    check((await page.title()) !== "1", "nor run");
    const answer = await page.goto(RUN);
    const policy = answer.headers()["content-security-policy"];
    check(/script-src 'self'/.test(policy) && !/unsafe/.test(policy), policy);
    const inline = await page.evaluate(() => document.querySelectorAll("[style], script:not([src]), style, [onclick]").length);
    check(inline === 0, "nothing is inline");
  },

  async shapes_tell_states_apart_without_colours({ fresh }) {
    const page = await fresh();
    await page.goto(RUN);
    const shapes = await page.locator("#map a").evaluateAll((all) => all.map((one) => [one.className.split(" ")[0], one.firstElementChild.textContent]));
    const known = new Map();
    for (const [state, shape] of shapes) {
      check((known.get(state) ?? shape) === shape, `${state} has one shape`);
      known.set(state, shape);
    }
    check(known.size >= 3 && new Set(known.values()).size === known.size, JSON.stringify([...known]));
    const session = await page.context().newCDPSession(page);
    await session.send("Emulation.setEmulatedVisionDeficiency", { type: "achromatopsia" });
    await picture(page, "no-colours", false);
  },

  async less_motion_is_none({ fresh }) {
    for (const [reducedMotion, some] of [["reduce", false], ["no-preference", true]]) {
      const page = await fresh({ reducedMotion });
      await page.goto(RUN);
      await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
      await page.evaluate(() => document.querySelector("#map a").classList.add("changed"));
      const count = await page.evaluate(() => document.getAnimations().length);
      check((count > 0) === some, `${reducedMotion}: ${count} animations`);
    }
  },

  async axe_finds_nothing_and_pictures_are_taken({ fresh }) {
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1280, 390]) {
        const page = await fresh({ viewport: { width, height: width === 1280 ? 900 : 844 }, colorScheme });
        const look = async (name) => {
          await axe(page, `${name}, ${width} px, ${colorScheme}`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          check(wide <= width, `${name} is ${wide} px wide on ${width} px`);
          await picture(page, `${name}-${width}-${colorScheme}`);
        };
        await page.goto(URL);
        await look("list");
        const links = await page.locator("article.cluster a").evaluateAll((all) => all.map((one) => one.href));
        await page.goto(`${RUN}?unit=osd.59`);
        await wait("the script", async () => (await text(page, "#live")).startsWith("live"));
        for (const summary of await page.locator(".controls summary").all()) await summary.click();
        await picture(page, `run-top-${width}-${colorScheme}`, false);
        await look("run");
        await page.goto(links[0]);
        await look("needs-you");
        await page.goto(links[2]);
        await look("ended");
        await page.goto(`${URL}/runs/none`);
        await look("nothing");
        await page.goto(`${URL}/login`);
        await look("login");
      }
    }
  },
};

main(flows);
