// What the scripts share: a browser, a way to the server that can be cut, and what is asked of the test around them.
"use strict";
const net = require("node:net");
const path = require("node:path");
const readline = require("node:readline");
const { chromium } = require("playwright-core");

const PLACE = process.env.PLACE;
const PORT = 8080;
exports.URL = `http://localhost:${PORT}`;
exports.RUN = `${exports.URL}/runs/${process.env.RUN}`;

// A forward to the socket, as `ssh -L` makes one.
exports.forward = () => {
  const open = new Set();
  const server = net.createServer((from) => {
    const to = net.connect(path.join(PLACE, "serve.sock"));
    for (const [one, other] of [[from, to], [to, from]]) {
      open.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => { open.delete(one); other.destroy(); });
      one.pipe(other);
    }
  });
  const listen = () => new Promise((done) => { server.listen(PORT, "localhost", done); });
  const cut = () => new Promise((done) => {
    server.close(done);
    for (const one of open) one.destroy();
  });
  return { listen, cut };
};

// The test around this script writes to the store, or takes it away.
const answers = [];
const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => answers.shift()?.(line));
exports.ask = async (words) => {
  const answer = await new Promise((done) => {
    answers.push(done);
    console.log(`@ask ${words}`);
  });
  if (answer.startsWith("failed")) throw new Error(`${words}: ${answer}`);
  return answer;
};

exports.check = (is, what) => {
  if (!is) throw new Error(what);
};

exports.picture = (page, name, fullPage = true) => page.screenshot({ path: path.join(PLACE, "pictures", `${name}.png`), fullPage });

exports.wait = async (what, test) => {
  const end = Date.now() + 30000;
  let last;
  while (Date.now() < end) {
    try {
      last = await test();
      if (last) return last;
    } catch (error) { last = error; }
    await new Promise((again) => setTimeout(again, 50));
  }
  throw new Error(`waited in vain for: ${what}; last seen: ${last}`);
};

// Runs the flows, one after another, and says of each how it ended.
exports.main = async (flows) => {
  const forward = exports.forward();
  await exports.wait("the socket", () => new Promise((done) => {
    const to = net.connect(path.join(PLACE, "serve.sock"), () => { to.destroy(); done(true); });
    to.on("error", () => done(false));
  }));
  await forward.listen();
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  console.log(`Chromium ${browser.version()}`);
  let failed = 0;
  // One alone, for whoever mends it.
  const wanted = Object.entries(flows).filter(([name]) => [undefined, name].includes(process.env.STAGGER_FLOW));
  exports.check(wanted.length > 0, `there is no flow ${process.env.STAGGER_FLOW}`);
  for (const [name, flow] of wanted) {
    const began = Date.now();
    const contexts = [];
    const fresh = async (options = {}) => {
      const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
      contexts.push(context);
      const page = await context.newPage();
      page.errors = [];
      page.on("pageerror", (error) => page.errors.push(String(error)));
      page.on("console", (said) => { if (said.type() === "error" && /Content Security|Refused|TypeError/.test(said.text())) page.errors.push(said.text()); });
      page.setDefaultTimeout(30000);
      return page;
    };
    try {
      await flow({ fresh, forward, browser });
      for (const context of contexts) {
        for (const page of context.pages()) exports.check(page.errors.length === 0, `errors on the page: ${page.errors.join("; ")}`);
      }
      console.log(`ok ${name} ${Date.now() - began} ms`);
    } catch (error) {
      failed += 1;
      const pages = contexts.flatMap((context) => context.pages());
      for (const page of pages) await exports.picture(page, `failed-${name}`).catch(() => {});
      console.log(`FAILED ${name}: ${error.stack}`);
    }
    for (const context of contexts) await context.close();
  }
  await browser.close();
  await forward.cut();
  lines.close();
  console.log(`${wanted.length - failed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
};
