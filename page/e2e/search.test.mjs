// One search over everything; what is printed; a leak's memory.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { documentOf, launch, opened, watched } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

test("the search finds parameters, lines, steps and findings, and goes there", async () => {
  const page = await watched(browser);
  await opened(page, "late");
  const seek = async (words) => {
    await page.keyboard.press("/");
    await page.fill(".frame-search input", words);
    await page.waitForSelector(".frame-search li");
    return page.$$eval(".frame-search li", (all) => all.map((one) => one.innerText.replaceAll("\n", " ")));
  };
  assert.ok((await seek("0.weight")).some((text) => text.startsWith("parameter 0.weight")));
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.startsWith("#/flow?") && location.hash.includes("parameter="));
  assert.ok((await seek("loss.backward")).some((text) => text.includes("late.py:")));
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.startsWith("#/source?"));
  assert.ok((await seek("step 7"))[0].startsWith("step step 7"));
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash === "#/steps?step=7");
  assert.ok((await seek(documentOf("late").findings[0].kind))[0].startsWith("finding"));
  page.quiet();
  await page.context().close();
});

test("what is printed has every row of a table and every finding open", async () => {
  const page = await watched(browser);
  await opened(page, "leak", "#/findings?finding=none");
  assert.equal(await page.locator(".findings-body").count(), 0);
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  await page.waitForSelector(".findings-body");
  await opened(page, "nodes", "#/flow");
  const rows = page.locator(".chart-table tbody tr[aria-rowindex]");
  const all = documentOf("nodes").parameters.length;
  assert.ok((await rows.count()) < Math.min(all, 60));
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  await page.waitForFunction(
    (n) => document.querySelectorAll(".chart-table tbody tr[aria-rowindex]").length === n,
    Math.min(all, 2000),
  );
  page.quiet();
  await page.context().close();
});

test("a leak tells its bytes over the steps, from the finding on", async () => {
  const page = await watched(browser);
  await opened(page, "leak");
  await page.click("text=memory over the steps");
  await page.waitForSelector(".memory-holder");
  assert.match(await page.innerText(".memory-holder"), /history.* at leak\.py:\d+/);
  assert.match(await page.innerText(".memory"), /Process: from .* in step 0 to .* in step \d+/);
  assert.match(await page.innerText(".memory"), /graphs of earlier steps alive when step \d+ began/);
  page.quiet();
  await page.context().close();
});
