// The pictures of the page and of the report, as a person sees them at first: no more than a screen.
"use strict";
const path = require("node:path");
const { main, picture, RUN, wait } = require("./browser.js");

const page = async ({ fresh }) => {
  const page = await fresh();
  await page.goto(RUN);
  await wait("live events", async () => /^live/.test(await page.locator("#live").textContent()));
  await picture(page, "page", false);
};

const report = async ({ fresh }) => {
  const page = await fresh();
  await page.goto(`file://${path.join(process.env.PLACE, "report.html")}`);
  await picture(page, "report", false);
};

main(process.env.PICTURE === "report" ? { report } : { page });
