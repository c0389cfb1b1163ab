// Every view of some reports, light and dark, wide and narrow, as pictures in e2e/out/looks for a person to look at.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, OUT, opened, sideways, views, watched } from "./browser.mjs";

const FOLDER = join(OUT, "looks");
let browser;
before(async () => {
  mkdirSync(FOLDER, { recursive: true });
  browser = await launch();
});
after(() => browser.close());

for (const colorScheme of ["light", "dark"]) {
  for (const [look, width, height] of [
    ["wide", 1400, 900],
    ["narrow", 390, 844],
  ]) {
    for (const name of ["nan", "raised", "healthy", "hostile", "killed", "levels"]) {
      test(`${name}, ${look}, ${colorScheme}`, async () => {
        const page = await watched(browser, { colorScheme, viewport: { width, height } });
        await opened(page, name);
        for (const view of await views(page)) {
          await page.click(`.frame-nav a[href="#/${view}"]`);
          await page.mouse.move(0, 0);
          await page.waitForTimeout(150); // charts are drawn after the view
          assert.equal(await sideways(page), 0, view);
          await page.screenshot({ path: join(FOLDER, `${name}-${view}-${look}-${colorScheme}.png`) });
        }
        page.quiet();
        await page.context().close();
      });
    }
  }
}
