import type { Plugin } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";
import { defineConfig } from "vitest/config";
import { thirdParty } from "./notices.mjs";

/**
 * The policy of the built page: nothing is loaded from anywhere but the place that the page came from, and only the
 * page's own script runs, known by its hash. Styles stay free: pictures that are saved carry theirs in attributes.
 */
async function policy(script: string): Promise<string> {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(script)));
  return [
    "default-src 'none'",
    `script-src 'sha256-${btoa(String.fromCharCode(...hash))}'`,
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

/** Last of all: puts the policy into the page whose script is already inside it. */
const guarded: Plugin = {
  name: "policy",
  apply: "build",
  enforce: "post",
  generateBundle: {
    order: "post",
    async handler(_, bundle) {
      const page = bundle["index.html"];
      if (page?.type !== "asset") throw new Error("there is no index.html to put the policy into");
      const text = String(page.source);
      const scripts = [...text.matchAll(/<script type="module"[^>]*>([\s\S]*?)<\/script>/g)];
      if (scripts.length !== 1) throw new Error(`expected one script in the page, found ${scripts.length}`);
      const meta = `<meta http-equiv="Content-Security-Policy" content="${await policy(scripts[0]![1]!)}" />`;
      page.source = text.replace("<head>", () => `<head>\n    ${meta}`);
    },
  },
};

export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true }), thirdParty(), guarded],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: true,
    chunkSizeWarningLimit: 400,
  },
  // No test fails because the machine is slow: a time limit is for one that hangs.
  test: { include: ["src/**/*.test.ts"], testTimeout: 300_000, hookTimeout: 300_000 },
});
