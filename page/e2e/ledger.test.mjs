// The ledger of a parameter against the records, and how a finding leads to it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { documentOf, expected, launch, opened, openedChanged, sideways, watched } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const PANEL = "section[aria-label='Ledger']";
const numberOf = (name) => documentOf("ledger").parameters.findIndex((one) => one.name === name);
const show = (page, name) => opened(page, "ledger", `#/flow?parameter=${numberOf(name)}`);

/** What the page shows: by group of rows, its head, and each event with its line. */
const shown = (page) =>
  page.locator(`${PANEL} .chart-scroll:not(.ledger-plain) tbody`).evaluateAll((groups) =>
    groups.map((group) => ({
      head: group.querySelector("th").innerText.replace(/\s+/g, " "),
      events: [...group.rows].map((row) => [...row.cells].slice(-2).map((cell) => cell.innerText.trim())),
    })),
  );

test("every parameter has the periods of the records, with their lines", async () => {
  const page = await watched(browser);
  const { ledger } = expected.ledger;
  assert.ok(ledger["generator.0.weight"].length > ledger["critic.0.weight"].length, JSON.stringify(ledger));
  for (const [name, periods] of Object.entries(ledger)) {
    await show(page, name);
    if (periods.length === 0) {
      assert.match(name, /^noise/);
      assert.equal(await page.locator(PANEL).count(), 0);
      continue;
    }
    const groups = await shown(page);
    assert.equal(groups.length, periods.length);
    for (const [i, { first, last, times, lines }] of periods.entries()) {
      const { head, events } = groups[i];
      assert.ok(head.startsWith(first === last ? `step ${first}` : `${first} to ${last}`), head);
      if (first !== last) assert.match(head, new RegExp(`(${times} times?|the same in all ${times})$`));
      assert.deepEqual(
        events.slice(0, -1).map(([, line]) => line),
        lines.map((line) => (line === null ? "not known" : `ledger.py:${line}`)),
      );
      assert.match(events.at(-1)[0], /^(Adam|SGD) stepped with the gradient: the weight moved/);
    }
  }
  page.quiet();
  await page.context().close();
});

test("a change outside of steps is in the account of that weight alone", async () => {
  const page = await watched(browser);
  const text = async (name) => {
    await show(page, name);
    return page.innerText(PANEL);
  };
  assert.match(await text("generator.0.weight"), /weight changed outside of steps/);
  assert.doesNotMatch(await text("generator.0.bias"), /weight changed outside of steps/);
  assert.match(await text("critic.0.weight"), /The same happened to 3 other parameters: critic\.0\.bias, critic\.2/);
  await page.click(`${PANEL} a:text-is("critic.2.bias")`);
  await page.waitForFunction(() =>
    document.querySelector(".ledger .chart-note")?.innerText.startsWith("critic.2.bias"),
  );
  page.quiet();
  await page.context().close();
});

test("the changes by steps are those of the document, with their parts", async () => {
  const page = await watched(browser);
  const name = "generator.0.weight";
  await show(page, name);
  const { rows } = documentOf("ledger").ledger.changes.find((one) => one.parameter === numberOf(name));
  assert.ok(rows.length > 0 && rows[0].length === 6);
  const table = page.getByRole("region", { name: `Changes of ${name} by Adam` });
  const cells = await table
    .locator("tbody tr")
    .evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.innerText.trim())));
  assert.deepEqual(cells, rows);
  assert.match(await page.innerText(PANEL), /the shares add up to 100%/);
  page.quiet();
  await page.context().close();
});

test("a finding leads to the ledger of its parameter with one click, and a line to the source", async () => {
  const page = await watched(browser);
  await opened(page, "ledger");
  const finding = expected.ledger.findings.findIndex((one) => one.kind === "foreign-gradient");
  assert.ok(finding >= 0, JSON.stringify(expected.ledger.findings));
  const [name] = expected.ledger.findings[finding].parameters;
  await opened(page, "ledger", `#/findings?finding=${finding}`);
  await page.getByRole("link", { name: `ledger of ${name}` }).click();
  const table = page.getByRole("region", { name: `Ledger of ${name} in SGD` });
  await table.waitFor();
  await page.waitForFunction((label) => document.activeElement?.ariaLabel === label, `Ledger of ${name} in SGD`);
  const box = await page.locator(PANEL).boundingBox();
  assert.ok(box.y >= 0 && box.y < 900, `at ${box.y}`);
  // By keys: from the table, into which the focus went, to the first step and on to the first line.
  const first = await table.locator("td a").first().innerText();
  while (!(await page.evaluate(() => document.activeElement?.matches("td a")))) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".source-row[aria-current]");
  assert.equal(`ledger.py:${await page.innerText(".source-row[aria-current] .source-number")}`, first);
  page.quiet();
  await page.context().close();
});

test("a run without records of the ledger shows nothing of it", async () => {
  const page = await watched(browser);
  await openedChanged(page, "ledger", (doc) => ({ ...doc, ledger: null }));
  await page.evaluate(() => (location.hash = "#/flow?parameter=0"));
  await page.waitForSelector(".flow");
  assert.equal(await page.locator(PANEL).count(), 0);
  await page.evaluate(() => (location.hash = "#/findings"));
  await page.waitForSelector(".findings-body");
  assert.equal(await page.getByRole("link", { name: /ledger of/ }).count(), 0);
  page.quiet();
  await page.context().close();
});

test("it fits a phone, and names are text", async () => {
  const page = await watched(browser, { viewport: { width: 400, height: 800 } });
  const bad = `<img src=x onerror="alert(1)">${"x".repeat(60)}`;
  await openedChanged(page, "ledger", (doc) => {
    doc.parameters[numberOf("critic.0.weight")].name = bad;
    for (const one of doc.ledger.optimizers) one.name = bad;
    for (const one of doc.ledger.events) one.text = `${bad} ${one.text}`;
    for (const one of doc.ledger.accounts) one.cut = 2;
    for (const one of doc.sites) one.file = `${bad}.py`;
    return doc;
  });
  for (const name of ["critic.0.weight", "critic.0.bias"]) {
    await page.evaluate((route) => (location.hash = route), `#/flow?parameter=${numberOf(name)}`);
    await page.locator(PANEL).waitFor();
    assert.ok((await page.innerText(PANEL)).includes(bad));
    assert.equal(await sideways(page), 0);
  }
  assert.equal(await page.locator("main img").count(), 0);
  page.quiet();
  await page.context().close();
});
