// What the tests share: a browser, a page that is watched, and what is known of the runs.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";
import { chromium } from "playwright-core";

export const OUT = process.env.BACKPROBE_REPORTS ?? join(dirname(fileURLToPath(import.meta.url)), "out");
export const expected = JSON.parse(readFileSync(join(OUT, "expected.json"), "utf-8"));
export const address = (name, route = "") => pathToFileURL(join(OUT, `${name}.html`)).href + route;
export const html = (name) => readFileSync(join(OUT, `${name}.html`), "utf-8");

/** The gzipped document inside a report. */
export function packed(name) {
  const found = /<script id="data" type="text\/plain">([^<]*)<\/script>/.exec(html(name));
  return Buffer.from(found[1], "base64");
}

export const documentOf = (name) => JSON.parse(gunzipSync(packed(name)).toString("utf-8"));

const places = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** How long something may take before the test counts as hung; no machine is as slow as that. */
const HANG = 300_000;

export async function launch() {
  const executablePath = places.find((one) => one && existsSync(one));
  assert.ok(executablePath, "no Chromium found: install it, or say where it is in CHROMIUM");
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
}

/**
 * A page in a context of its own that is watched: `page.quiet()` fails if anything was said on the console, raised,
 * asked for by a dialog, or requested from anywhere but the file. `allowed` says which addresses are those of the test itself.
 */
export async function watched(browser, options = {}, allowed = null) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  context.setDefaultTimeout(HANG);
  const wrong = [];
  const watch = (page) => {
    page.on("console", (message) => wrong.push(`console ${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => wrong.push(`raised: ${error.stack}`));
    page.on("dialog", (dialog) => {
      wrong.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
  };
  context.on("page", watch);
  context.on("request", (request) => {
    const url = request.url();
    if (!/^(file|data|blob|about):/.test(url) && !allowed?.(url)) wrong.push(`request: ${url}`);
  });
  const page = await context.newPage();
  page.quiet = () => assert.deepEqual(wrong, []);
  return page;
}

/** Open a report and wait until it is there. */
export async function opened(page, name, route = "") {
  // A change of the part after # alone would not load the page again.
  await page.goto("about:blank");
  await page.goto(address(name, route));
  await page.waitForSelector("main#content");
}

/** Open a report whose document `change` made another one of. */
export async function openedChanged(page, name, change) {
  const data = gzipSync(JSON.stringify(change(documentOf(name)))).toString("base64");
  const text = html(name).replace(packed(name).toString("base64"), () => data);
  writeFileSync(join(OUT, "changed.html"), text);
  await opened(page, "changed");
}

/** Wait until `holds`, asked over and over. */
export async function until(holds) {
  const end = performance.now() + HANG;
  while (!(await holds())) {
    assert.ok(performance.now() < end, `${holds} never came true`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Names of the views, in the order of the navigation. */
export const views = (page) =>
  page.$$eval(".frame-nav a", (all) => all.map((a) => a.getAttribute("href").replace(/^#\//, "")));

export const current = (page) =>
  page.$eval('.frame-nav a[aria-current="page"]', (a) => a.getAttribute("href").replace(/^#\//, ""));

/** By how many pixels the body is wider than the window. */
export const sideways = (page) => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
