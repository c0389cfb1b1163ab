// The frame: every view of every report opens silently, keys, theme, address, Back, phones, damaged data.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import {
  address,
  current,
  documentOf,
  expected,
  html,
  launch,
  OUT,
  opened,
  packed,
  sideways,
  until,
  views,
  watched,
} from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

describe("every report", () => {
  for (const name of [...Object.keys(expected), "nodes", "steps"]) {
    test(`${name}: each view opens by a click, silently, and none fails`, async () => {
      const page = await watched(browser);
      await opened(page, name);
      for (const view of await views(page)) {
        await page.click(`.frame-nav a[href="#/${view}"]`);
        assert.equal(await current(page), view);
        assert.equal(await page.$(".frame-empty pre"), null, `${view} failed`);
        assert.ok((await page.innerText("main")).trim().length > 0, `${view} shows nothing`);
        assert.equal(await sideways(page), 0, `${view} scrolls sideways`);
      }
      page.quiet();
      await page.context().close();
    });
  }
});

test("the header says what ran and how it ended", async () => {
  const page = await watched(browser);
  await opened(page, "nan");
  const run = documentOf("nan").run;
  const header = await page.innerText(".frame-header");
  for (const part of [
    "nan",
    "fully_masked_attention_row.py --an <b>&",
    `${expected.nan.steps} steps`,
    `torch ${run.torch}`,
  ]) {
    assert.ok(header.includes(part), `${part} is not in ${header}`);
  }
  assert.equal(await page.$(".frame-sign"), null, "a run that ended well has no sign");
  await opened(page, "killed");
  assert.match(await page.innerText(".frame-state"), /cut off/);
  assert.match(await page.innerText("main"), /The run was cut off/);
  await opened(page, "raised");
  assert.match(await page.innerText(".frame-state"), /ended with an error/);
  assert.ok((await page.innerText("main")).includes(expected.raised.error));
  page.quiet();
  await page.context().close();
});

test("keys go to views, to the help and back", async () => {
  const page = await watched(browser);
  await opened(page, "nan");
  const names = await views(page);
  for (const [i, name] of names.entries()) {
    await page.keyboard.press(String((i + 1) % 10));
    assert.equal(await current(page), name);
  }
  await page.keyboard.press("g");
  await page.keyboard.press("f");
  assert.equal(await current(page), "findings");
  await page.keyboard.press("?");
  const help = await page.innerText("dialog[open]");
  for (const name of names) assert.match(help.toLowerCase(), new RegExp(name));
  await page.keyboard.press("2");
  assert.equal(await current(page), "findings", "keys do nothing behind the help");
  await page.keyboard.press("Escape");
  assert.equal(await page.$("dialog[open]"), null);
  await page.keyboard.press("2");
  assert.equal(await current(page), names[1]);
  await page.keyboard.press("Control+1");
  assert.equal(await current(page), names[1], "keys of the browser stay its own");
  page.quiet();
  await page.context().close();
});

test("all of the frame is reached by Tab, and the skip link goes to the content", async () => {
  const page = await watched(browser);
  await opened(page, "nan");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "content");
  assert.doesNotMatch(page.url(), /content/);
  await page.keyboard.press("Tab");
  assert.ok(await page.evaluate(() => document.querySelector("main").contains(document.activeElement)));
  page.quiet();
  await page.context().close();
});

test("the theme follows the system, can be chosen, and stays chosen", async () => {
  const page = await watched(browser, { colorScheme: "dark" });
  await opened(page, "nan");
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await background();
  await page.emulateMedia({ colorScheme: "light" });
  const light = await background();
  assert.notEqual(dark, light);
  const button = page.getByRole("button", { name: /^Theme:/ });
  await button.click(); // light
  await button.click(); // dark
  assert.equal(await background(), dark);
  await page.reload();
  await page.waitForSelector("main#content");
  assert.equal(await background(), dark);
  assert.match(await button.getAttribute("aria-label"), /^Theme: dark/);
  await button.click();
  assert.equal(await background(), light);
  page.quiet();
  await page.context().close();
});

test("the address keeps what is shown: Back, a new tab, a mistyped one", async () => {
  const page = await watched(browser);
  await opened(page, "hostile");
  await page.getByRole("button", { expanded: false }).nth(1).click();
  await page.waitForFunction(() => location.hash.includes("finding="));
  const shown = await page.innerText("main");
  const link = page.url();
  await page.keyboard.press(String((await views(page)).indexOf("source") + 1));
  assert.equal(await current(page), "source");
  await page.goBack();
  assert.equal(await current(page), "findings");
  assert.equal(await page.innerText("main"), shown);

  const other = await page.context().newPage();
  await other.goto(link);
  await other.waitForSelector("main#content");
  assert.equal(await other.innerText("main"), shown);
  await other.goto(link.replace(/#.*/, "#/100%?finding=%E0&call=-1&line=x"));
  await other.waitForSelector("main#content");
  assert.equal(await current(other), "findings");
  page.quiet();
  await page.context().close();
});

test("every link between views leads to one that works, and a new tab shows the same", async () => {
  const page = await watched(browser);
  for (const name of ["nan", "raised", "hostile"]) {
    await opened(page, name, `#/findings?finding=${expected[name].findings.map((_, i) => i).join(",")}`);
    const names = await views(page);
    const found = new Set(await page.$$eval("main a[href^='#/']", (all) => all.map((a) => a.getAttribute("href"))));
    const [site] = expected[name].findings[0].sites;
    await opened(page, name, `#/source?line=${site.line}`);
    for (const link of await page.$$eval(".source-about a", (all) => all.map((a) => a.getAttribute("href"))))
      found.add(link);
    for (const link of found) {
      const view = link.slice(2).split("?")[0];
      if (!names.includes(view)) continue;
      await page.evaluate((to) => (location.hash = to), link);
      await page.waitForFunction(
        (to) => document.querySelector('.frame-nav a[aria-current="page"]').getAttribute("href").split("?")[0] === to,
        `#/${view}`,
      );
      const other = await page.context().newPage();
      await other.goto(address(name, link));
      await other.waitForSelector("main#content");
      // Some parts are drawn after the view.
      await until(async () => (await other.innerText("main")) === (await page.innerText("main")));
      assert.equal(await page.$(".frame-empty pre"), null, `${link} failed`);
      await other.close();
    }
  }
  page.quiet();
  await page.context().close();
});

test("a view opens at its top, and after Back where it was left", async () => {
  const page = await watched(browser, { viewport: { width: 800, height: 400 } });
  await opened(page, "hostile");
  await page.evaluate(() => window.scrollTo(0, 250));
  await page.keyboard.press(String((await views(page)).indexOf("source") + 1));
  assert.equal(await page.evaluate(() => window.scrollY), 0);
  await page.goBack();
  assert.equal(await current(page), "findings");
  assert.equal(await page.evaluate(() => window.scrollY), 250);
  page.quiet();
  await page.context().close();
});

test("on a phone nothing scrolls sideways, and the current view is in sight in the row", async () => {
  const page = await watched(browser, { viewport: { width: 390, height: 844 }, hasTouch: true });
  for (const name of ["nan", "hostile", "healthy"]) {
    await opened(page, name);
    for (const view of await views(page)) {
      await page.click(`.frame-nav a[href="#/${view}"]`);
      assert.equal(await sideways(page), 0, `${name}: ${view}`);
      const box = await page.locator('.frame-nav a[aria-current="page"]').boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 390, `${view} is out of sight`);
    }
  }
  page.quiet();
  await page.context().close();
});

test("in a notebook's frame, without an origin of its own, views, links, keys and theme work", async () => {
  const page = await watched(browser);
  await page.goto(pathToFileURL(join(OUT, "framed.html")).href);
  const frame = page.frameLocator("iframe");
  await frame.locator("main#content").waitFor();
  await frame.locator('.frame-nav a[href="#/source"]').click();
  await frame.locator(".source-listing").waitFor();
  await frame.getByRole("button", { name: /^Theme:/ }).click();
  await frame.getByRole("button", { name: "Next marked line" }).click();
  await frame.locator(".source-row[aria-current]").waitFor();
  await frame.locator("body").press("1");
  await frame.locator(".findings-advice").waitFor();
  assert.match(page.url(), /framed\.html$/);
  page.quiet();
  await page.context().close();
});

describe("data that cannot be shown is told in words", () => {
  const cases = {
    "without a run": ["", /page without a run in it/],
    "not base64": ["%%%", /damaged .*write it again/],
    "cut in the middle": [packed("nan").subarray(0, 3000).toString("base64"), /damaged .*write it again/],
    "another format": [gzip({ ...documentOf("nan"), format: 99 }), /reads format 3; the data has format 99/],
    "no document": [gzip(null), /damaged \(it holds no document\)/],
    "parts missing": [
      gzip({ ...documentOf("nan"), layouts: undefined, sites: undefined }),
      /damaged \(no sites, layouts\)/,
    ],
    "a column of another type": [
      gzip({ ...documentOf("nan"), steps: { ...documentOf("nan").steps, index: { t: "i7", b: "" } } }),
      /column of type i7 is damaged/,
    ],
  };
  for (const [what, [data, message]] of Object.entries(cases)) {
    test(what, async () => {
      const folder = join(OUT, "damaged");
      mkdirSync(folder, { recursive: true });
      const file = join(folder, `${what}.html`);
      writeFileSync(
        file,
        html("nan").replace(/(<script id="data" type="text\/plain">)[^<]*/, (_, tag) => tag + data),
      );
      const page = await watched(browser);
      await page.goto(pathToFileURL(file).href);
      await page.waitForSelector('[role="alert"]');
      assert.match(await page.innerText('[role="alert"] p'), message);
      page.quiet();
      await page.context().close();
    });
  }
});

function gzip(value) {
  return gzipSync(JSON.stringify(value)).toString("base64");
}
