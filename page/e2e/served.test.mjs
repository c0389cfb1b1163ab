// The page as `backprobe view` itself serves it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { launch, OUT, watched } from "./browser.mjs";

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
