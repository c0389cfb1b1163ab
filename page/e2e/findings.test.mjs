// The first screen against what `backprobe show --json` says.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { documentOf, expected, launch, opened, openedChanged, watched } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const permissions = ["clipboard-read", "clipboard-write"];
const WORDS = { error: "Error", warning: "Warning", info: "Note" };
/** Short words of code are shown in full. */
const LABELS = {
  op: "operation",
  nan: "NaN",
  inf: "Inf",
  numel: "elements",
  grad: "gradient",
  param: "parameter",
  dtype: "type",
  ddp: "DDP",
};
const label = (key) =>
  key
    .split("_")
    .map((word) => LABELS[word] ?? word)
    .join(" ")
    .trim();
const flat = (text) => text.replace(/\s+/g, " ");

describe("every finding is shown as the records have it", () => {
  for (const name of ["nan", "raised", "hostile"]) {
    const findings = expected[name].findings;
    test(name, async () => {
      const page = await watched(browser);
      await opened(page, name, `#/findings?finding=${findings.map((_, i) => i).join(",")}`);
      const cards = page.locator(".findings-card");
      assert.equal(await cards.count(), findings.length);
      for (const [i, finding] of findings.entries()) {
        const card = cards.nth(i);
        const text = flat(await card.innerText());
        assert.equal(flat(await card.locator(".findings-title").innerText()), flat(finding.title).trim());
        assert.equal(await card.locator(".findings-severity").innerText(), WORDS[finding.severity]);
        for (const part of [finding.kind, finding.confidence, finding.advice])
          assert.ok(text.includes(flat(part)), `${part} of ${finding.kind}`);
        if (finding.step !== null) assert.ok(text.includes(`step ${finding.step}`));
        const marked = await card.locator(".findings-marked").evaluateAll((all) =>
          all.map((one) => ({
            line: Number(one.querySelector(".findings-number").textContent),
            code: one.querySelector(".findings-number + span").textContent.trim(),
            roles: [...one.querySelectorAll(".findings-role b")].map((b) => b.textContent.replace("▲ ", "")),
          })),
        );
        for (const site of finding.sites) {
          const found = marked.find((one) => one.line === site.line && one.roles.includes(site.role));
          assert.ok(found, `${site.role} at ${site.file}:${site.line} of ${finding.kind}`);
          assert.ok(site.text === "" || found.code.includes(site.text.trim()));
        }
        const chips = await card.locator(".findings-chip").allTextContents();
        assert.deepEqual(chips, finding.parameters);
        for (const key of Object.keys(finding.evidence)) assert.ok(text.includes(label(key)), `evidence ${key}`);
      }
      page.quiet();
      await page.context().close();
    });
  }
});

test("only the first one is open at first; the others open with keys too", async () => {
  const page = await watched(browser);
  await opened(page, "hostile");
  const open = () => page.locator('.findings-head button[aria-expanded="true"]').count();
  assert.equal(await open(), 1);
  const { y } = await page.locator(".findings-columns").first().boundingBox();
  assert.ok(y < 620, `the lines of the first finding begin at ${y}, below the first screen`);
  await page.locator(".findings-head button").nth(2).focus();
  await page.keyboard.press("Enter");
  assert.equal(await open(), 2);
  await page.keyboard.press("Enter");
  assert.equal(await open(), 1);
  await page.locator(".findings-head button").first().click();
  assert.equal(await open(), 0);
  page.quiet();
  await page.context().close();
});

test("a link to a finding opens it and brings it into sight", async () => {
  const page = await watched(browser, { viewport: { width: 1000, height: 420 } });
  await opened(page, "hostile", "#/findings?finding=3");
  const card = page.locator(".findings-card").nth(3);
  const box = await card.boundingBox();
  assert.ok(box.y >= 0 && box.y < 420, `at ${box.y}`);
  assert.equal(await card.locator("button").first().getAttribute("aria-expanded"), "true");
  page.quiet();
  await page.context().close();
});

test("the buttons copy what they say", async () => {
  const page = await watched(browser, { permissions });
  await opened(page, "hostile");
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  const findings = expected.hostile.findings;
  // The word is there for a moment only, so it is waited for before the click.
  await Promise.all([
    page.getByText("Copied").waitFor(),
    page.getByRole("button", { name: "Copy all as text" }).click(),
  ]);
  const text = await copied();
  for (const [i, finding] of findings.entries()) {
    assert.ok(
      text.includes(`${i + 1}. ${finding.kind}  (${finding.severity}, ${finding.confidence})\n   ${finding.title}\n`),
    );
    for (const site of finding.sites) assert.ok(text.includes(`:${site.line} in ${site.function}`));
  }
  const card = page.locator(".findings-card").first();
  await Promise.all([
    card.getByText("Copied").waitFor(),
    card.getByRole("button", { name: "Copy as Markdown" }).click(),
  ]);
  const markdown = await copied();
  assert.ok(markdown.startsWith(`### 1. \`${findings[0].kind}\` (${findings[0].severity}`));
  assert.ok(!markdown.includes(`### 2.`));
  // The marked line has three backticks in it: its block is quoted with more.
  const line = findings[0].sites[0].text;
  assert.ok(line.includes("```"), "the example lost its backticks");
  assert.ok(markdown.includes(`\`\`\`\`python\n${line.trim()}\n\`\`\`\``), markdown);
  page.quiet();
  await page.context().close();
});

test("links lead to the views that show more", async () => {
  const page = await watched(browser);
  await opened(page, "hostile", "#/findings?finding=0,1");
  const hrefs = await page.$$eval(".findings-body a", (all) => all.map((a) => a.getAttribute("href")));
  const step = expected.hostile.findings[0].step;
  assert.ok(hrefs.includes(`#/steps?step=${step}`));
  const parameter = documentOf("hostile").parameters.findIndex(
    (one) => one.name === expected.hostile.findings[1].parameters[0],
  );
  assert.ok(parameter >= 0 && hrefs.includes(`#/flow?parameter=${parameter}`));
  await page.locator(".findings-lines figcaption a").first().click();
  await page.waitForSelector(".source-row[aria-current]");
  assert.equal(
    Number(await page.innerText(".source-row[aria-current] .source-number")),
    expected.hostile.findings[0].sites[0].line,
  );
  page.quiet();
  await page.context().close();
});

test("names that try to be more are shown as names", async () => {
  const page = await watched(browser, { permissions });
  await opened(page, "hostile", "#/findings?finding=0,1,2,3");
  const text = await page.innerText("body");
  for (const name of ["<b>bold</b>&amp;", "</script><script>alert(3)</script>.weight", "<script>alert(5)</script>"]) {
    assert.ok(text.includes(name), `${name} is not shown`);
  }
  assert.equal(await page.locator("main :is(script, img, b:has-text('bold'))").count(), 0);
  page.quiet();
  await page.context().close();
});

test("a healthy run says so, with its figures and its loss", async () => {
  const page = await watched(browser);
  await opened(page, "healthy");
  assert.match(await page.innerText("main"), /No problems found/);
  const losses = expected.healthy.losses;
  const ends = await page.$$eval(".findings-ends span", (all) =>
    all.map((one) => Number(one.textContent.split(": ")[1])),
  );
  for (const [i, loss] of [losses[0], losses.at(-1)].entries())
    assert.ok(Math.abs(ends[i] - loss) < 0.01 * Math.abs(loss), `${ends[i]} for ${loss}`);
  assert.equal(await page.locator(".findings-course canvas").count(), 2);
  page.quiet();
  await page.context().close();
});

test("where watching had gaps, notes alone do not say that nothing is wrong, and the head says what was missed", async () => {
  const page = await watched(browser);
  const gap = "recording stopped at step 3: <b>no room</b>";
  const note = { ...expected.hostile.findings.find((one) => one.severity === "info"), sites: [], at: null };
  for (const findings of [[], [note]]) {
    await openedChanged(page, "healthy", (doc) => ({ ...doc, findings, run: { ...doc.run, gaps: [gap] } }));
    const text = await page.innerText("main");
    assert.match(text, /Nothing found in what was recorded/);
    assert.doesNotMatch(text, /No problems/);
    assert.ok((await page.innerText(".frame-header")).includes(gap));
  }
  page.quiet();
  await page.context().close();
});

test("the overhead is told", async () => {
  const page = await watched(browser);
  await opened(page, "late");
  const { took } = documentOf("late").run;
  assert.match(took, /^Overhead /);
  assert.ok((await page.innerText(".findings-figures")).includes(took));
  await page.context().close();
});
