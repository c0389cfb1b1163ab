// The source view against sums over the recorded nodes, made in Python.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { documentOf, expected, launch, opened, watched } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A text such as "79.6 ms" in seconds. */
const UNITS = { µs: 1e-6, ms: 1e-3, s: 1 };
function duration(text) {
  const [value, unit] = text.split(" ");
  return Number(value) * UNITS[unit];
}

const rows = (page) =>
  page.$$eval(".source-row:not(.source-head)", (all) =>
    all.map((row) => ({
      line: Number(row.querySelector(".source-number").textContent),
      time: row.querySelector(".source-cell").textContent,
      gradient: row.querySelector(".source-cell-gradient").textContent,
      text: row.querySelector(".source-text").textContent,
    })),
  );

/** Seconds of a line: by node the mean over the calls in which it was timed, added up; -1 where none was. */
function seconds(calls, line) {
  const nodes = calls[0].lines[line].seconds.map((_, i) =>
    calls.map((call) => call.lines[line].seconds[i]).filter((one) => one !== null),
  );
  const known = nodes.filter((one) => one.length > 0);
  return known.length ? known.reduce((sum, one) => sum + one.reduce((a, b) => a + b) / one.length, 0) : -1;
}

describe("times by line are the sums over the nodes, the mean over the calls with the same graph", () => {
  for (const name of ["nan", "raised", "healthy", "hostile"]) {
    test(name, async () => {
      const doc = documentOf(name);
      const page = await watched(browser);
      for (const [number, call] of doc.calls.entries()) {
        const of = (other) => expected[name].calls.find((one) => one.index === other.index);
        const recorded = of(call);
        const alike = doc.calls.filter((one) => one.layout === call.layout).map(of);
        const file = doc.sources[0].file;
        await opened(page, name, `#/source?${new URLSearchParams({ call: number, file })}`);
        const shown = new Map((await rows(page)).map((row) => [row.line, row]));
        let seen = 0;
        for (const [line, want] of Object.entries(recorded.lines)) {
          if (!want.file.endsWith(file.split("/").at(-1))) continue;
          const row = shown.get(Number(line));
          if (!row) continue; // further down than what is drawn
          seen++;
          assert.notEqual(row.gradient, "", `line ${line} has nodes`);
          const time = seconds(alike, line);
          if (time < 0) assert.equal(row.time, "");
          else
            assert.ok(
              Math.abs(duration(row.time) - time) <= 0.006 * time + 1e-8,
              `line ${line}: ${row.time} for ${time}`,
            );
        }
        assert.ok(seen > 0, "no line was compared");
      }
      page.quiet();
      await page.context().close();
    });
  }
});

test("the lines are the file's, and those that findings name are marked", async () => {
  const page = await watched(browser);
  const doc = documentOf("nan");
  await opened(page, "nan", "#/source");
  const shown = await rows(page);
  assert.deepEqual(
    shown.map((row) => row.text),
    doc.sources[0].lines.filter((line) => line !== "…"),
  );
  const named = await page.$$eval(".source-named .source-number", (all) => all.map((one) => Number(one.textContent)));
  const file = expected.nan.findings[0].sites[0].file;
  const want = expected.nan.findings.flatMap((one) =>
    one.sites.filter((site) => site.file === file).map((site) => site.line),
  );
  assert.deepEqual(
    named,
    [...new Set(want)].sort((a, b) => a - b),
  );
  page.quiet();
  await page.context().close();
});

test("from mark to mark by button and key, and the address keeps the line", async () => {
  const page = await watched(browser);
  await opened(page, "nan", "#/source");
  const chosen = async () => Number(await page.innerText(".source-row[aria-current] .source-number"));
  await page.getByRole("button", { name: "Next marked line" }).click();
  const first = await chosen();
  await page.locator(".source-listing").press("n");
  const second = await chosen();
  assert.ok(second > first);
  await page.locator(".source-listing").press("p");
  assert.equal(await chosen(), first);
  await page.locator(".source-listing").press("ArrowDown");
  assert.equal(await chosen(), first + 1);
  await page.waitForFunction((line) => location.hash.includes(`line=${line}`), first + 1);
  const text = await page.innerText(".source-about");
  await page.reload();
  await page.waitForSelector(".source-row[aria-current]");
  assert.equal(await page.innerText(".source-about"), text);
  page.quiet();
  await page.context().close();
});

test("the table is saved as CSV with every line", async () => {
  const page = await watched(browser, { acceptDownloads: true });
  await opened(page, "nan", "#/source");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "CSV" }).click(),
  ]);
  const text = readFileSync(await download.path(), "utf-8");
  assert.equal(download.suggestedFilename(), "fully_masked_attention_row.py.csv");
  assert.match(text, /^line,text,mean_backward_seconds,nodes,gradient_norm,bytes_kept,marks,findings\r\n1,/);
  assert.match(text, new RegExp(`^${documentOf("nan").sources[0].lines.length},`, "m"));
  page.quiet();
  await page.context().close();
});

test("libraries are a switch away: their files, the nodes that were made through their lines, and back", async () => {
  const page = await watched(browser);
  const doc = documentOf("healthy");
  await opened(page, "healthy", "#/source");
  const files = () => page.$$eval(".source-bar option", (all) => all.map((one) => one.value));
  const of = (library) => doc.sources.filter((one) => one.library === library).map((one) => one.file);
  assert.deepEqual(await files(), of(false));
  await page.getByRole("button", { name: "Libraries" }).click();
  assert.deepEqual(await files(), of(true));
  const file = of(true).find((one) => one.endsWith("linear.py"));
  await page.getByLabel("File").selectOption(file);
  const used = ".source-row:not(.source-idle):not(.source-head)";
  await page.waitForSelector(used); // a file opens where its first nodes are
  const counted = await page.$$eval(used, (all) =>
    all.map((row) => row.querySelector(".source-text").textContent.trim()),
  );
  assert.deepEqual(counted, ["return F.linear(input, self.weight, self.bias)"]);
  await page.getByRole("button", { name: "My code" }).click();
  assert.deepEqual(await files(), of(false));
  page.quiet();
  await page.context().close();
});
