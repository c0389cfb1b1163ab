// The page as `backprobe view` itself serves it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { launch, OUT, until, watched } from "./browser.mjs";

const PYTHON = process.env.PYTHON ?? "python3";

async function served(run, work) {
  assert.ok(existsSync(run), `${run} is not there: run reports.py`);
  const command = spawn(PYTHON, ["-m", "backprobe", "view", "--no-browser", run], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const browser = await launch();
  try {
    const [line] = await once(createInterface({ input: command.stdout }), "line");
    const address = /http:\/\/127\.0\.0\.1:\d+\/\?token=\S+/.exec(line)?.[0];
    assert.ok(address, line);
    const base = new URL("/", address).href;
    const page = await watched(browser, {}, (url) => url.startsWith(base));
    await work(page, address);
    page.quiet();
  } finally {
    await browser.close();
    command.kill("SIGINT");
    const [code] = await once(command, "exit");
    assert.equal(code, 0, "Ctrl-C ends it quietly");
  }
}

test("a run is shown by the command's own server", async () => {
  await served(join(OUT, "runs", "nan"), async (page, address) => {
    await page.goto(address);
    await page.waitForSelector(".findings-head");
    assert.match(await page.innerText("main#content"), /NaN/);
  });
});

test("norms that were thinned are exact where the reader looks", async () => {
  await served(join(OUT, "big", "steps"), async (page, address) => {
    await page.goto(`${address}#/steps?parameters=3`);
    const note = page.getByText("Thinned to fit in a page");
    await note.waitFor();
    const answer = page.waitForResponse((one) => one.url().includes("/steps?"));
    await page.goto(`${address}#/steps?parameters=3&from=7000&to=7200`);
    assert.equal((await answer).status(), 200);
    await note.waitFor({ state: "detached" });
  });
});

/** A step whenever a line comes in. A budget would let most of so short ones pass, and count them when it looks again. */
const GROWING = `
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(12)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for line in sys.stdin:
    for _ in range(int(line)):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
    print("went on", flush=True)
`;

test("a page follows a growing run, and is sent what is new", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "growing-"));
  writeFileSync(join(folder, "train.py"), GROWING);
  const run = join(folder, "run");
  const command = ["-m", "backprobe", "run", "--quiet", "--budget", "none", "--out", run, join(folder, "train.py")];
  const script = spawn(PYTHON, command, { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => script.kill()); // nothing waits for it where this fails
  const said = createInterface({ input: script.stdout })[Symbol.asyncIterator]();
  const train = async (steps) => {
    script.stdin.write(`${steps}\n`);
    assert.equal((await said.next()).value, "went on");
  };
  await train(300);
  await served(run, async (page, address) => {
    const sizes = [];
    page.on("response", async (answer) => {
      if (answer.url().includes("/data?") && answer.status() === 200) sizes.push((await answer.body()).length);
    });
    await page.goto(`${address}#/steps?parameters=0,3`);
    const steps = async () => Number(/([\d,]+) steps/.exec(await page.innerText(".frame-header"))[1].replace(",", ""));
    await page.waitForSelector(".steps-grid");
    for (const more of [5, 1, 20]) {
      const [before, sent] = [await steps(), sizes.length];
      await train(more);
      await until(async () => (await steps()) > before && sizes.length > sent);
    }
    script.stdin.end();
    await once(script, "exit");
    await page.waitForFunction(() => !document.querySelector(".frame-state")?.textContent.includes("live"));
    const [whole, ...news] = sizes;
    t.diagnostic(`whole: ${whole} bytes; then ${news.join(", ")}`);
    for (const size of news) assert.ok(size < whole / 4, `${size} of ${whole} bytes`);
    // A page that is opened now gets the whole at once, and shows the same.
    const other = await page.context().newPage();
    for (const view of ["steps?parameters=0,3", "flow", "findings", "graph", "time"]) {
      await page.evaluate((to) => (location.hash = to), `#/${view}`);
      await other.goto(`${address}#/${view}`);
      await other.waitForSelector("main#content");
      await until(async () => (await other.innerText("main")) === (await page.innerText("main")));
    }
  });
});
