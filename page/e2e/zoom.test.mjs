// Wheel, drag, fingers, keys and double clicks on the pictures that are zoomed: the graph, the time, the flow.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, opened, until, watched } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const near = (a, b, slack = 1.5) => assert.ok(Math.abs(a - b) <= slack, `${a} is not near ${b}`);

/** Two fingers on both sides of a place go from one distance to another, both moved along by `by`. */
async function pinch(page, x, y, from, to, by = 0) {
  const session = await page.context().newCDPSession(page);
  const at = (d, moved) => [
    { x: x - d + moved, y, id: 0 },
    { x: x + d + moved, y, id: 1 },
  ];
  await session.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: at(from, 0) });
  for (let i = 1; i <= 8; i++) {
    const touchPoints = at(from + ((to - from) * i) / 8, (by * i) / 8);
    await session.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints });
  }
  await session.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
}

async function swipe(page, [x, y], [dx, dy]) {
  const session = await page.context().newCDPSession(page);
  await session.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [{ x, y }] });
  for (let i = 1; i <= 8; i++) {
    const touchPoints = [{ x: x + (dx * i) / 8, y: y + (dy * i) / 8 }];
    await session.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints });
  }
  await session.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
}

async function drag(page, [x, y], [dx, dy]) {
  await page.mouse.move(x, y);
  await page.mouse.down();
  for (let i = 1; i <= 5; i++) await page.mouse.move(x + (dx * i) / 5, y + (dy * i) / 5);
  await page.mouse.up();
}

/** What `read` gives when it is another than `before` and has become what it is meant to be. */
async function changed(before, read, holds) {
  let now;
  await until(async () => {
    now = await read();
    return JSON.stringify(now) !== JSON.stringify(before) && holds(now);
  });
  return now;
}

const EYE = () => {
  const [, x, y, k] = /translate\(([-\d.e]+),([-\d.e]+)\) scale\(([\d.e-]+)\)/.exec(
    document.querySelector(".graph-canvas svg > g[transform]").getAttribute("transform"),
  );
  return { x: Number(x), y: Number(y), k: Number(k) };
};

test("the graph is moved and zoomed by mouse, wheel, keys and fingers", async () => {
  const page = await watched(browser, { hasTouch: true });
  await opened(page, "healthy", "#/graph");
  await page.waitForSelector(".graph-canvas [data-box]");
  const next = (eye, holds = () => true) => changed(eye, () => page.evaluate(EYE), holds);
  const canvas = await page.locator(".graph-canvas").boundingBox();
  const [x, y] = [canvas.width / 2 + 30, canvas.height / 2 - 20];
  const [px, py] = [canvas.x + x, canvas.y + y];
  const first = await next({});
  const hash = new URL(page.url()).hash;

  await page.mouse.move(px, py);
  await page.mouse.wheel(0, -200);
  const closer = await next(first);
  assert.ok(closer.k > first.k * 1.1, "the wheel zooms");
  near((x - closer.x) / closer.k, (x - first.x) / first.k, 2);
  near((y - closer.y) / closer.k, (y - first.y) / first.k, 2);

  await drag(page, [px, py], [90, 40]);
  const about = (a, b, slack) => Math.abs(a - b) <= slack;
  const moved = await next(closer, ({ x, y }) => about(x - closer.x, 90, 8) && about(y - closer.y, 40, 8));
  assert.equal(new URL(page.url()).hash, hash, "a drag chooses nothing");

  await page.keyboard.down("Shift");
  await page.mouse.wheel(0, 100);
  await page.keyboard.up("Shift");
  const aside = await next(moved);
  assert.ok(aside.x < moved.x - 50 && aside.k === moved.k, "Shift and the wheel go sideways");

  await page.focus(".graph-canvas");
  await page.keyboard.press("ArrowLeft");
  const left = await next(aside);
  near(left.x - aside.x, 80);
  await page.keyboard.press("+");
  const plus = await next(left);
  near(plus.k / left.k, 1.25, 0.01);
  await page.keyboard.press("0");
  const again = await next(plus);
  near(again.x, first.x);
  near(again.k, first.k, 1e-6);

  await pinch(page, px, py, 40, 120);
  const pinched = await next(again, ({ k }) => k > again.k * 2);
  near((x - pinched.x) / pinched.k, (x - again.x) / again.k, 12);
  await swipe(page, [px, py], [60, 30]);
  const swiped = await next(pinched, ({ x, y }) => x > pinched.x + 30 && y > pinched.y + 10);
  for (let i = 0; i < 12; i++) await page.mouse.wheel(0, -2000);
  const closest = await next(swiped, ({ k }) => about(k, 4, 1e-6));
  await page.click(".graph-zoom button:text('Fit')");
  await next(closest);
  await page.locator(".graph-canvas .graph-module").first().click();
  await page.waitForFunction((before) => location.hash !== before, hash);
  page.quiet();
  await page.context().close();
});

test("a double click on the head of an open group closes it", async () => {
  const page = await watched(browser);
  await opened(page, "healthy", "#/graph");
  await page.locator(".graph-canvas .graph-module").first().click();
  const frames = page.locator(".graph-canvas .graph-frame");
  await frames.first().waitFor();
  const count = await frames.count();
  const box = await frames.first().boundingBox();
  await page.mouse.dblclick(box.x + 30, box.y + 8);
  await until(async () => (await frames.count()) < count);
  page.quiet();
  await page.context().close();
});

/** The two ends in a part of the address; null where it is not there. */
const ends = (page, key) =>
  page.evaluate((name) => {
    const found = new URLSearchParams(location.hash.split("?")[1]).get(name);
    return found ? found.split("~").map(Number) : null;
  }, key);

test("the time is moved and zoomed by mouse, wheel, keys and fingers; a plain wheel is the page's", async () => {
  const page = await watched(browser, { hasTouch: true });
  await opened(page, "healthy", "#/time");
  const canvas = page.locator(".time-icicle canvas");
  await canvas.waitFor();
  const box = await canvas.boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + 30];
  const next = (range, holds = () => true) => changed(range, () => ends(page, "range"), holds);
  const size = ([a, b]) => b - a;
  await page.mouse.move(x, y);
  await page.mouse.wheel(0, 100);
  await page.mouse.wheel(0, -100);
  await page.waitForTimeout(600);
  assert.equal(await ends(page, "range"), null);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -600);
  await page.keyboard.up("Control");
  const closer = await next(null);
  await drag(page, [x, y], [-200, 0]);
  const moved = await next(closer, ([a]) => Math.abs((a - closer[0]) / size(closer) - 200 / box.width) < 0.02);
  near(size(moved) / size(closer), 1, 1e-3);
  assert.doesNotMatch(page.url(), /module=|node=/, "a drag picks nothing");
  await page.keyboard.down("Shift");
  await page.mouse.wheel(0, -100);
  await page.keyboard.up("Shift");
  const aside = await next(moved);
  assert.ok(aside[0] < moved[0], "Shift and the wheel go sideways");
  await page.mouse.click(x, y);
  await page.waitForFunction(() => /module=|node=/.test(location.hash));
  await canvas.focus();
  await page.keyboard.press("+");
  const plus = await next(aside);
  assert.ok(size(plus) < size(aside));
  await page.keyboard.press("0");
  assert.equal(await next(plus), null);
  await pinch(page, x, y, 40, 160);
  const pinched = await next(null, (now) => now && size(now) < 2.4 * size(closer));
  await swipe(page, [x, y], [-150, 0]);
  const swiped = await next(pinched, ([a]) => a > pinched[0]);
  await page.click("button:text-is('All')");
  assert.equal(await next(swiped), null);
  await page.mouse.dblclick(x, box.y + box.height - 15);
  await next(null);
  page.quiet();
  await page.context().close();
});

test("the flow is zoomed by wheel, keys, buttons and fingers, and moved by its scroll bar", async () => {
  const page = await watched(browser, { hasTouch: true });
  await opened(page, "nodes", "#/flow");
  const svg = page.locator(".flow-plot > svg");
  await svg.waitFor();
  const box = await svg.boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + 100];
  const next = (items) =>
    changed(
      items,
      () => ends(page, "items"),
      () => true,
    );
  await page.mouse.move(x, y);
  await page.mouse.wheel(0, -100);
  await page.waitForTimeout(600);
  assert.equal(await ends(page, "items"), null);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -600);
  await page.keyboard.up("Control");
  const [a, b] = await next(null);
  assert.ok(b - a > 4);
  await page.locator(".flow-scroll").evaluate((one) => one.scrollBy(200, 0));
  const [c, d] = await next([a, b]);
  assert.ok(c > a, "the scroll bar moves");
  near(d - c, b - a, 0.05);
  await svg.focus();
  await page.keyboard.press("+");
  const closer = await next([c, d]);
  assert.ok(closer[1] - closer[0] < d - c);
  await page.click("button:text-is('All')");
  assert.equal(await next(closer), null);
  await pinch(page, x, y, 40, 160);
  await next(null);
  page.quiet();
  await page.context().close();
});
