// A page that a server shows: it asks for news, takes them, and keeps what the reader looks at.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { documentOf, html, launch, until, watched } from "./browser.mjs";

const TOKEN = "a+b/c=";
let browser, server, base, state;

before(async () => {
  browser = await launch();
  server = createServer((request, answer) => {
    const url = new URL(request.url, base);
    state.asked.push(url.pathname.slice(1));
    if (url.searchParams.get("token") !== TOKEN) return answer.writeHead(403).end();
    if (url.pathname === "/data") {
      const since = url.searchParams.get("since");
      if (since === state.doc.version) return answer.writeHead(204).end();
      state.sent.push(state.doc.version);
      return answer.end(gzipSync(JSON.stringify(state.changes[since] ?? state.doc)));
    }
    if (url.pathname === "/") return answer.setHeader("Content-Type", "text/html").end(state.page);
    answer.writeHead(404).end();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  base = `http://127.0.0.1:${server.address().port}/`;
});
after(async () => {
  await browser.close();
  server.close();
});

function serve(withData) {
  const doc = documentOf("nan");
  doc.version = "v1";
  doc.run.live = true;
  const meta = `<meta name="backprobe-live" content="${TOKEN}">`;
  const data = withData ? gzipSync(JSON.stringify(doc)).toString("base64") : "";
  const page = html("nan")
    .replace(/(<script id="data" type="text\/plain">)[^<]*/, (_, tag) => tag + data)
    .replace("<title>", () => `${meta}<title>`);
  // What is sent to those who have an earlier version; the whole to others.
  state = { doc, page, asked: [], sent: [], changes: {} };
}

const open = async (page, hash = "") => {
  await page.goto(`${base}?token=${encodeURIComponent(TOKEN)}${hash}`);
  await page.waitForSelector("main#content");
};

test("a newer document is shown, and the address, the scroll and what is open stay", async () => {
  serve(true);
  const page = await watched(browser, { viewport: { width: 900, height: 400 } }, (url) => url.startsWith(base));
  await open(page, "#/findings?finding=0");
  assert.match(await page.innerText(".frame-state"), /live/);
  await page.evaluate(() => window.scrollTo(0, 180));
  const place = async () => (await page.locator(".findings-lines").first().boundingBox()).y;
  const before = await place();
  const address = page.url();
  await page
    .locator(".findings-head button")
    .first()
    .evaluate((one) => one.focus({ preventScroll: true }));
  state.doc = { ...state.doc, version: "v2", run: { ...state.doc.run, steps: 12345 } };
  await page.getByText("12,345 steps").waitFor();
  assert.equal(page.url(), address);
  assert.ok(Math.abs((await place()) - before) <= 1, "what is read stays where it is, to a pixel");
  assert.ok(await page.evaluate(() => document.activeElement.closest(".findings-head") !== null), "the focus stays");
  const asked = () => state.asked.filter((one) => one === "data").length;
  const so = asked();
  await until(() => asked() >= so + 3);
  assert.deepEqual(state.sent, ["v2"], "the same version is not sent again");
  assert.ok(!state.asked.includes("favicon.ico"));
  page.quiet();
  await page.context().close();
});

test("what has changed is put in; where that fails, all is asked for", async () => {
  serve(true);
  const page = await watched(browser, {}, (url) => url.startsWith(base));
  await open(page);
  const next = (version, steps) => {
    const { version: since, run } = state.doc;
    const change = ["in", { version: ["set", version], run: ["in", { steps: ["set", steps] }] }];
    state.changes = { [since]: { since, change } };
    state.doc = { ...state.doc, version, run: { ...run, steps } };
  };
  next("v2", 222);
  await page.getByText("222 steps").waitFor();
  next("v3", 333);
  await page.getByText("333 steps").waitFor();
  next("v4", 444);
  state.changes.v3.since = "v0";
  await page.getByText("444 steps").waitFor();
  assert.deepEqual(state.sent, ["v2", "v3", "v4", "v4"]);
  page.quiet();
  await page.context().close();
});

test("a page that comes without data asks for it, and a server that is gone is told", async () => {
  serve(false);
  const page = await watched(browser, {}, (url) => url.startsWith(base));
  await open(page);
  assert.match(await page.innerText("main"), /1 finding/);
  state.doc = { ...state.doc, version: "v3", run: { ...state.doc.run, live: false } };
  await page.waitForFunction(() => !document.querySelector(".frame-state").textContent.includes("live"));
  state.page = "";
  await new Promise((done) => {
    server.close(done);
    server.closeAllConnections();
  });
  await page.getByText("no connection").waitFor();
  assert.match(await page.innerText("main"), /1 finding/, "what was shown stays");
  await page.context().close();
});
