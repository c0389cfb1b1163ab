// The page of compared runs: the verdict, and from there to the operation that differs.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { address, documentOf, launch, OUT, opened, sideways, until, views, watched } from "./browser.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const text = (page, selector) => page.$eval(selector, (one) => one.textContent);

test("the verdict names the operation, its calls side by side and the lines of both", async () => {
  const page = await watched(browser);
  await opened(page, "compared");
  assert.match(await text(page, ".compare-said"), /They differ/);
  const cards = await page.$$eval(".compare-card", (all) => all.map((one) => one.textContent));
  assert.equal(cards.length, 2);
  assert.match(cards[0], /mul\.Tensor.*tensor 0, 0\.5\)/s);
  assert.match(cards[1], /mul\.Tensor.*tensor 0, 0\.25\)/s);
  assert.deepEqual(await page.$$eval(".compare-card mark", (all) => all.map((one) => one.textContent)), [
    "0.5",
    "0.25",
  ]);
  const here = await page.$$eval(".compare-here code", (all) => all.map((one) => one.textContent));
  assert.equal(here.length, 2);
  for (const line of here) assert.match(line, /self\.scale if number == 2/);
  // The setting differs before any number.
  assert.match(await text(page, '[aria-label="Before any number"]'), /scale.*0\.5.*0\.25/s);
  page.quiet();
  await page.context().close();
});

test("from the verdict to the operation, to what it took, and by the address back to it", async () => {
  const page = await watched(browser);
  await opened(page, "compared");
  await page.click("text=See it among the operations");
  const { suspect } = documentOf("compared").comparisons[0].ops;
  await page.waitForSelector(".compare-detail");
  assert.match(page.url(), new RegExp(`#/ops\\?row=${suspect}$`));
  assert.match(await text(page, ".compare-list tr.picked"), /mul\.Tensor.*differs/s);
  assert.match(await text(page, ".compare-detail"), /What it took.*same bits.*What it gave.*differs/s);
  // The result of tanh, or the view of it that autograd keeps.
  await page.click(".compare-detail td a");
  await until(async () => /tanh|detach/.test(await text(page, ".compare-detail h3")));
  await page.goBack();
  await until(async () => /mul/.test(await text(page, ".compare-detail h3")));
  // Only those that differ; the first of them is the suspect.
  await page.click('button:text-is("Differ")');
  await until(async () => /mul\.Tensor/.test(await text(page, ".compare-list tbody tr")));
  await page.fill("main input[type=search]", "layers.3 forward");
  await until(async () =>
    (await page.$$eval(".compare-list tbody tr td:nth-child(2)", (all) => all.map((one) => one.textContent))).every(
      (one) => one === "layers.3",
    ),
  );
  page.quiet();
  await page.context().close();
});

test("modules and steps: what ran before the operation has the same bits, what ran after it differs", async () => {
  const page = await watched(browser);
  await opened(page, "compared", "#/flow");
  const rows = await page.$$eval(".compare-bars-row", (all) => all.map((one) => one.textContent));
  assert.match(
    rows.find((one) => one.startsWith("layers.1")),
    /^layers\.1same bits/,
  );
  assert.match(
    rows.find((one) => one.startsWith("layers.3")),
    /^layers\.3\d/,
  );
  await page.click(".frame-nav a[href^='#/steps']");
  const steps = await page.$$eval(".compare-steps tbody tr", (all) => all.map((one) => one.textContent));
  assert.equal(steps.length, 2);
  const loss = documentOf("compared").comparisons[0].steps[0].loss;
  assert.notEqual(loss[0], loss[1]);
  for (const one of loss) assert.ok(steps[0].includes(String(Number(one.toPrecision(8)))), steps[0]);
  page.quiet();
  await page.context().close();
});

test("of many runs, which agree", async () => {
  const page = await watched(browser);
  await opened(page, "many");
  const groups = await page.$$eval(".compare-groups > li", (all) => all.map((one) => one.textContent));
  assert.equal(groups.length, 2);
  assert.match(groups[0], /plain.*low/s);
  assert.match(groups[1], /fault/);
  await page.click("main >> text=low >> nth=-1");
  await until(async () => /The same but for rounding/.test(await text(page, ".compare-said")));
  await page.selectOption('[aria-label="Compared with"]', "0");
  await until(async () => /They differ/.test(await text(page, ".compare-said")));
  page.quiet();
  await page.context().close();
});

test("keys go to views, and the theme changes", async () => {
  const page = await watched(browser);
  await opened(page, "compared");
  await page.keyboard.press("3");
  await page.waitForSelector(".compare-list");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("type")), "search");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.press("Escape");
  await page.click("button[aria-label^='Theme']");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
  page.quiet();
  await page.context().close();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1400, 800, 390]) {
    test(`nothing is wider than the window: ${width}, ${colorScheme}`, async () => {
      const folder = join(OUT, "looks");
      mkdirSync(folder, { recursive: true });
      const page = await watched(browser, { colorScheme, viewport: { width, height: 900 } });
      for (const name of ["compared", "many"]) {
        await opened(page, name);
        for (const view of await views(page)) {
          await page.goto(address(name, `#/${view}`));
          await page.waitForSelector(`.frame-nav a[href="#/${view}"][aria-current]`);
          assert.equal(await sideways(page), 0, view);
          await page.screenshot({ path: join(folder, `${name}-${view}-${width}-${colorScheme}.png`) });
        }
      }
      page.quiet();
      await page.context().close();
    });
  }
}
