import { defineConfig } from "vitest/config";
import { viteSingleFile } from "vite-plugin-singlefile";

/** The policy of the built page: nothing is loaded from anywhere but the place that the page came from. */
const POLICY =
  "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'";

export default defineConfig({
  plugins: [
    viteSingleFile({ removeViteModuleLoader: true }),
    {
      name: "policy",
      apply: "build",
      transformIndexHtml: () => [
        { tag: "meta", attrs: { "http-equiv": "Content-Security-Policy", content: POLICY }, injectTo: "head-prepend" },
      ],
    },
  ],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { outDir: "dist", target: "es2022", modulePreload: false, reportCompressedSize: true, chunkSizeWarningLimit: 400 },
  test: { include: ["src/**/*.test.ts"] },
});
