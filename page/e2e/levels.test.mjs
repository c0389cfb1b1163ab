// Statistics by layer: a map of layers against steps, curves, bounds, alarms.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { documentOf, expected, launch, opened, openedChanged, watched } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const MAP = "canvas[aria-label^='Heat map']";
const at = (page) => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? "")));

test("a finding leads to its alarm: the quantity, the layer and the step", async () => {
  const page = await watched(browser);
  await opened(page, "levels");
  const finding = expected.levels.findings.find((one) => one.kind === "update-too-large");
  assert.ok(finding, JSON.stringify(expected.levels.findings));
  await page.getByRole("link", { name: "levels over the steps" }).click();
  await page.waitForSelector("main.frame-main-levels");
  const [name] = finding.parameters;
  assert.equal(await page.inputValue(".levels select"), "update_ratio");
  assert.match(await page.innerText(".levels-chips"), new RegExp(name.replaceAll(".", "\\.")));
  assert.equal(await page.inputValue(".frame-step input[type=number]"), String(finding.step));
  assert.match(await page.innerText(".levels-alarms"), /update-too-large: update \/ weight of .* held against 0\.1/);
  assert.match(await page.innerText(".levels .chart-note"), /Measured in 30 steps, up to step 58\..*dotted bound/s);
  page.quiet();
  await page.context().close();
});

test("a click in the map picks a layer and a step, and what is said there is what was measured", async () => {
  const page = await watched(browser);
  await opened(page, "levels", "#/levels?of=activation_rms");
  const kind = documentOf("levels").levels.kinds.find((one) => one.quantity === "activation_rms");
  const values = new Float32Array(Uint8Array.from(Buffer.from(kind.values.b, "base64")).buffer);
  const map = page.locator(MAP);
  const box = await map.boundingBox();
  const each = box.height / kind.names.length;
  const row = kind.names.length - 1;
  await map.click({ position: { x: box.width - 24, y: (row + 0.5) * each } });
  await page.waitForFunction(() => location.hash.includes("step=58"));
  const now = await at(page);
  assert.ok(now.layers.split(",").includes(kind.names[row]), now.layers);
  const said = await page.innerText(".chart-tooltip");
  const value = values[29 * kind.names.length + row];
  const number = Number(/RMS of activations\s+([\d.e+-]+)/.exec(said)?.[1]);
  assert.ok(Math.abs(number - value) <= 0.006 * Math.abs(value), `${said}: ${value}`);
  assert.match(said, /step 58/);
  // The same by keys: the row above, one look earlier.
  await map.focus();
  await map.press("ArrowUp");
  await map.press("ArrowLeft");
  await map.press("Enter");
  await page.waitForFunction(() => location.hash.includes("step=56"));
  assert.ok((await at(page)).layers.split(",").includes(kind.names[row - 1]));
  // The step is that of the whole page.
  await page.click('.frame-nav a[href^="#/steps"]');
  assert.equal(await page.inputValue(".frame-step input[type=number]"), "56");
  page.quiet();
  await page.context().close();
});

test("a quantity that is chosen is kept in the address, and each has a picture", async () => {
  const page = await watched(browser);
  await opened(page, "levels", "#/levels");
  const kinds = documentOf("levels").levels.kinds;
  for (const kind of kinds) {
    await page.selectOption(".levels select", kind.quantity);
    await page.waitForFunction((of) => location.hash.includes(`of=${of}`), kind.quantity);
    assert.match(await page.locator(MAP).getAttribute("aria-label"), new RegExp(`of ${kind.names.length} layers?`));
  }
  assert.ok(
    kinds.some((one) => one.quantity === "saturated") && kinds.length > 10,
    kinds.map((one) => one.quantity),
  );
  page.quiet();
  await page.context().close();
});

test("a run that was not measured says how it is", async () => {
  const page = await watched(browser);
  await opened(page, "nan", "#/levels");
  assert.match(await page.innerText("main"), /backprobe run --layer-stats 10/);
  page.quiet();
  await page.context().close();
});

test("names are text", async () => {
  const page = await watched(browser);
  const bad = '<img src=x onerror="alert(1)">';
  await openedChanged(page, "levels", (doc) => {
    for (const kind of doc.levels.kinds) kind.names[0] = bad;
    doc.levels.alarms[0].text = bad;
    return doc;
  });
  await page.evaluate((name) => (location.hash = `#/levels?of=weight_norm&layers=${encodeURIComponent(name)}`), bad);
  await page.getByRole("button", { name: `Take ${bad} away` }).waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  page.quiet();
  await page.context().close();
});
