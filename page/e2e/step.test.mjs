// One selected step for the whole page: a run that fails in its last step, 40.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, opened, openedChanged, watched } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const flat = (text) => text.replace(/\s+/g, " ");
const step = (page) => page.inputValue(".frame-step input[type=number]");

test("the finding's step is shown in every view, and what is of another step is said", async () => {
  const page = await watched(browser);
  await opened(page, "late");
  assert.match(await page.innerText(".findings-sub"), /step 40/);
  for (const view of ["flow", "graph", "steps", "time", "source"]) {
    await page.click(`.frame-nav a[href="#/${view}"]`);
    await page.waitForSelector(`main.frame-main-${view}`);
    assert.equal(await step(page), "40", view);
  }
  // Source shows the failed step: its marks are there.
  assert.match(await page.innerText(".source-listing"), /forward NaN\/Inf|NaN\/Inf/);
  await page.click('.frame-nav a[href="#/flow"]');
  assert.match(await page.innerText(".flow .chart-note"), /^The gradient is as backward gave it\./);
  // Weights are measured as often as time allows: at this step, or at one before, and then that is said.
  const weights = /^Weights, updates and update \/ weight of step \d+: not measured at step 40$/;
  for (const said of await page.locator(".frame-elsewhere").allInnerTexts()) assert.match(said, weights);
  await page.click('.frame-nav a[href="#/steps"]');
  assert.match(flat(await page.innerText(".steps-one")), /gradient NaN \(as backward gave it\)/i);
  await page.click('.frame-nav a[href="#/flow"]');
  await page.getByRole("button", { name: "Modules", exact: true }).click();
  const told = (await page.locator(".frame-elsewhere").allInnerTexts()).join("; ");
  assert.match(told, /forward norms.* of step \d+: not measured at step 40/i);
  assert.match(await page.innerText(".flow .chart-note"), /outputs as measured in step \d+, not in step 40;/i);
  assert.equal(await page.locator(".flow-plot .chart-empty").count(), 0);
  page.quiet();
  await page.context().close();
});

test("the Time view says how long the parts of a step take", async () => {
  const page = await watched(browser);
  // The steps of the test's runs are too short to be timed.
  const phases = { steps: 40, seconds: [0.0125, 0.2, 0.3, 0.05, 0] };
  await openedChanged(page, "healthy", (document) => ({ ...document, phases }));
  await page.click('.frame-nav a[href^="#/time"]');
  await page.waitForSelector(".time-phases");
  const panel = page.locator(".time > .chart-panel").first();
  assert.match(await panel.innerText(), /^A step takes 563 ms\s+Median of 40 recorded steps/);
  const names = (await panel.locator(".time-phase-names li").allInnerTexts()).map(flat);
  assert.deepEqual(names, [
    "Before the forward 12.5 ms 2.2%",
    "Forward 200 ms 36%",
    "Backward 300 ms 53%",
    "Optimizer 50.0 ms 8.9%",
  ]);
  const widths = await panel.locator(".time-phases span").evaluateAll((all) => all.map((one) => one.clientWidth));
  assert.equal(widths.length, 4);
  assert(Math.abs(widths[2] / widths[1] - 1.5) < 0.05, String(widths));
  page.quiet();
  await page.context().close();
});

test("a step that is chosen in one view is that of all, and the address keeps it", async () => {
  const page = await watched(browser);
  await opened(page, "late", "#/flow");
  await page.fill(".frame-step input[type=number]", "11");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("step=11"));
  for (const view of ["graph", "steps", "time", "source", "findings"]) {
    await page.click(`.frame-nav a[href^="#/${view}"]`);
    await page.waitForSelector(`main.frame-main-${view}`);
    assert.match(await page.evaluate(() => location.hash), /step=11/, view);
    if (view !== "findings") assert.equal(await step(page), "11", view);
    if (view === "graph") assert.match(await page.innerText(".frame-elsewhere"), /Graph of step \d+: not in this page/);
  }
  await page.reload();
  await page.click('.frame-nav a[href^="#/steps"]');
  assert.match(await page.innerText(".steps-one"), /^Step 11/);
  page.quiet();
  await page.context().close();
});

test("opening a finding selects its step", async () => {
  const page = await watched(browser);
  await opened(page, "late", "#/findings?step=3&finding=none");
  await page.click(".findings-head button");
  await page.waitForFunction(() => location.hash.includes("step=40"));
  page.quiet();
  await page.context().close();
});

test("the last step is in the heat map and in the curves", async () => {
  const page = await watched(browser);
  await opened(page, "late", "#/steps");
  const map = page.locator("canvas[aria-label^='Heat map']");
  await map.scrollIntoViewIfNeeded();
  // The failed step's column is painted in the colour of what is not finite, at the right end.
  const [last, before] = await map.evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, canvas.height / 2, canvas.width, 1);
    const ratio = devicePixelRatio;
    const [left, right] = [54 * ratio, canvas.width - 18 * ratio];
    const cell = (right - left) / 41;
    const colour = (k) => [...data.slice(4 * Math.round(left + (k + 0.5) * cell)).slice(0, 4)].join();
    return [colour(40), colour(39)];
  });
  const bad = await page.evaluate(() => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = "var(--bad)";
    return `${getComputedStyle(probe).color.match(/\d+/g).join()},255`;
  });
  assert.equal(last, bad);
  assert.notEqual(before, bad);
  page.quiet();
  await page.context().close();
});
