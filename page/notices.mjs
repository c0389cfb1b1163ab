import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** The file that the build writes beside the page; a copy of it is in the repository's root and in each release. */
const FILE = "THIRD_PARTY_NOTICES";

function read(folder) {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

/** The folder of the package that a module is in; "" for the page's own. A package.json without a version is none's. */
function packageOf(id) {
  if (!id.includes("/node_modules/")) return "";
  let folder = dirname(id.replace(/[?\0].*$/, ""));
  while (!existsSync(join(folder, "package.json")) || !read(folder).version) folder = dirname(folder);
  return folder;
}

/** The folders of packages and of those that they depend on: some have those built in. */
function withDependencies(folders) {
  const found = new Set(folders);
  for (const folder of found)
    for (const name of Object.keys(read(folder).dependencies ?? {})) {
      let above = folder;
      while (!existsSync(join(above, "node_modules", name, "package.json"))) above = dirname(above);
      found.add(join(above, "node_modules", name));
    }
  return [...found];
}

/** Name, version, licence and its text; an error where the package has none. */
function library(folder) {
  const { name, version, license } = read(folder);
  const files = readdirSync(folder).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file));
  if (!license || files.length === 0) throw new Error(`${name} is in the page, and its folder has no licence`);
  const texts = files.sort().map((file) => readFileSync(join(folder, file), "utf8").replace(/\r/g, "").trim());
  return { name, version, license, text: texts.join("\n\n") };
}

function notices(libraries) {
  const found = ["Third-party notices", "", "The page of backprobe's reports contains these libraries:", ""];
  found.push(...libraries.map((one) => `  ${one.name} ${one.version} (${one.license})`), "");
  for (const one of libraries) found.push("=".repeat(72), `${one.name} ${one.version}`, "", one.text, "");
  return found.map((line) => line.replace(/[ \t]+$/gm, "")).join("\n");
}

export function thirdParty() {
  const folders = new Set();
  return {
    name: "third-party-notices",
    apply: "build",
    enforce: "post",
    renderChunk(_, chunk) {
      for (const id of chunk.moduleIds) folders.add(packageOf(id));
      return null;
    },
    generateBundle: {
      order: "post",
      handler(_, bundle) {
        folders.delete("");
        const libraries = withDependencies(folders)
          .map(library)
          .sort((a, b) => (a.name < b.name ? -1 : 1));
        const text = notices(libraries);
        const page = bundle["index.html"];
        if (page?.type !== "asset") throw new Error("there is no index.html to put the notices into");
        if (text.includes("--")) throw new Error("the notices have -- in them, which ends no comment of HTML");
        page.source = String(page.source)
          .replace(
            "<head>",
            () => "<head>\n    <!-- backprobe: Apache-2.0. Licences of libraries: end of this file. -->",
          )
          .replace(/\s*$/, () => `\n<!--\n${text}-->\n`);
        this.emitFile({ type: "asset", fileName: FILE, source: text });
      },
    },
  };
}
