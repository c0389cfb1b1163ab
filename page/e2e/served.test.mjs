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

/** Updates of a hundredth of the weights; from the line "N big" on, of half of them. */
const RISING = `
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0)
for line in sys.stdin:
    count, *big = line.split()
    for group in optimizer.param_groups:
        group["lr"], group["weight_decay"] = (0.5, 0.5) if big else (1e-3, 0.0)
    for _ in range(int(count)):
        optimizer.zero_grad()
        (model(torch.randn(4, 16)) * torch.randn(4, 4)).mean().backward()
        optimizer.step()
    print("went on", flush=True)
`;

test("statistics and alarms come as they are measured, and only what is new is sent", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "rising-"));
  writeFileSync(join(folder, "train.py"), RISING);
  const run = join(folder, "run");
  const options = ["--quiet", "--budget", "none", "--layer-stats", "2", "--out", run, join(folder, "train.py")];
  const script = spawn(PYTHON, ["-m", "backprobe", "run", ...options], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => script.kill());
  const said = createInterface({ input: script.stdout })[Symbol.asyncIterator]();
  const train = async (line) => {
    script.stdin.write(`${line}\n`);
    assert.equal((await said.next()).value, "went on");
  };
  await train("150");
  await served(run, async (page, address) => {
    const sizes = [];
    page.on("response", async (answer) => {
      if (answer.url().includes("/data?") && answer.status() === 200) sizes.push((await answer.body()).length);
    });
    await page.goto(`${address}#/levels?of=update_ratio&layers=0.weight`);
    await page.getByText("Measured in 75 steps").waitFor();
    assert.equal(await page.locator(".levels-alarms").count(), 0);
    await train("4");
    await page.getByText("Measured in 77 steps").waitFor();
    await train("30 big");
    await page.locator(".levels-alarms").getByText("update-too-large").waitFor();
    assert.match(await page.innerText('.frame-nav a[href^="#/levels"]'), /3/);
    await page.waitForFunction(() => document.querySelector("main").innerText.includes("Measured in 92 steps"));
    assert.match(await page.innerText(".levels-chips"), /0\.weight/);
    script.stdin.end();
    await once(script, "exit");
    await page.waitForFunction(() => !document.querySelector(".frame-state")?.textContent.includes("live"));
    const [whole, ...news] = sizes;
    t.diagnostic(`whole: ${whole} bytes; then ${news.join(", ")}`);
    assert.ok(news[0] < whole / 4, `${news[0]} of ${whole} bytes`);
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.waitForSelector(".levels-alarms");
    await until(async () => (await other.innerText("main")) === (await page.innerText("main")));
  });
});
