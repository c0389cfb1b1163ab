import type { Call, Decoded, Floats, Forward, Layout } from "./document";

export type Calls = Call<Floats, Int32Array>;
export type Forwards = Forward<Floats, Int32Array>;
export type Nodes = Layout<Floats, Int32Array>;

/** A document with what every view needs of it worked out once. Views that need more make it lazily, in files of their own. */
export class Model {
  /** By module: the modules right inside it, in forward order. */
  readonly children: readonly number[][];
  /** By module: its depth, 0 for the outermost one. */
  readonly depth: Int32Array;
  /** By module: the last module below it plus one. Modules are in preorder, so `m` holds `m + 1` to `end[m]`. */
  readonly end: Int32Array;

  constructor(readonly doc: Decoded) {
    const modules = doc.modules;
    const children: number[][] = modules.map(() => []);
    this.depth = new Int32Array(modules.length);
    this.end = new Int32Array(modules.length);
    modules.forEach((module, i) => {
      if (module.parent < 0) return;
      children[module.parent]!.push(i);
      this.depth[i] = this.depth[module.parent]! + 1;
    });
    for (let i = modules.length - 1; i >= 0; i--) {
      this.end[i] = Math.max(this.end[i]!, i + 1);
      const parent = modules[i]!.parent;
      if (parent >= 0) this.end[parent] = Math.max(this.end[parent]!, this.end[i]!);
    }
    this.children = children;
  }

  /** Whether module `inner` is `outer` or inside it. */
  within(inner: number, outer: number): boolean {
    return inner >= outer && inner < this.end[outer]!;
  }

  /** What a person calls a module. */
  name(module: number): string {
    return module < 0 ? "" : this.doc.modules[module]!.path || "(model)";
  }

  /** The nodes of a call. */
  nodes(call: Calls): Nodes {
    return this.doc.layouts[call.layout]!;
  }

  /** By node: the line of a file that made it, as an index into `sites`; -1 for none. Where calls of a library pass through
   * the file more than once it is the innermost line. */
  linesIn({ site, library, stacks }: Nodes, file: string): Int32Array {
    const here = (one: number) => this.doc.sites[one]?.file === file;
    const inner = stacks.map((stack) => stack.findLast(here) ?? -1);
    return site.map((own, node) => (here(own) ? own : (inner[library[node]!] ?? -1)));
  }

  /** "train.py:41", or "" for no site. */
  place(site: number): string {
    const found = this.doc.sites[site];
    return found ? `${found.file}:${found.line}` : "";
  }
}
