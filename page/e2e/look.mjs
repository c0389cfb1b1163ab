// Screenshots of a report: node e2e/look.mjs REPORT NAME [ROUTE...]; written to e2e/out. For looking, not for testing.
import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [file, name, ...routes] = process.argv.slice(2);
mkdirSync("e2e/out", { recursive: true });
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
for (const colorScheme of ["light", "dark"]) {
  for (const width of [1400, 390]) {
    const page = await browser.newPage({ colorScheme, viewport: { width, height: width > 400 ? 900 : 844 } });
    page.on("console", (m) => console.log(m.type(), m.text()));
    page.on("pageerror", (e) => console.log("ERROR", e));
    for (const route of routes.length ? routes : ["#/findings"]) {
      await page.goto(pathToFileURL(file) + route);
      await page.waitForSelector("main");
      await page.waitForTimeout(300);
      await page.screenshot({ path: `e2e/out/${name}-${route.replace(/[^a-z0-9]+/gi, "-").slice(1, 30)}-${width}-${colorScheme}.png` });
    }
    await page.close();
  }
}
await browser.close();
