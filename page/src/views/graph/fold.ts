import type { Nodes } from "../../data/model";
import { type Draft, draft } from "./instances";
import { repeats } from "./repeat";

/** No group shows more entries than this at once; what is longer comes in parts of at most `PART`. */
export const MOST = 48;
const PART = 24;
/** Entries that are few enough to be read are not folded, except for blocks. */
const FEW = 8;
const LEAVES = 8;
/** Fewer than this many of a kind are not folded. */
const LEAST = 3;

/** What a fold asks about the graph. */
export interface Facts {
  nodes: Nodes;
  /** Class of a module. */
  type: (module: number) => string;
  /** Line of a site; -1 where it is not known. */
  line: (site: number) => number;
}

/** Folds what repeats itself in one group after the other, inner groups first, and breaks up what stays long. */
export class Folder {
  private readonly signs = new Map<string, number>();
  private readonly ofNode = new Map<number, number>();

  constructor(private readonly facts: Facts) {}

  fold(group: Draft): void {
    group.items = this.folded(group.items, group.module);
    let inside = `in ${this.facts.type(group.module)} ${group.cuts.length}`;
    for (const item of group.items) inside += ` ${this.sign(item)}`;
    group.sign = this.intern(inside);
    if (group.items.length > MOST) group.items = this.byLine(group.items, group.module);
    group.items = paged(group.items, group.module);
    if (group.leaves.length > LEAVES) {
      const leaves = draft("leaves", group.module, paged(group.leaves, group.module));
      leaves.of = group.leaves.length;
      group.items.push(leaves);
    } else group.items.push(...group.leaves);
    group.items.push(...paged(group.cuts, group.module));
  }

  /** What repeats is folded until nothing does: loops in loops. */
  private folded(items: (Draft | number)[], module: number): (Draft | number)[] {
    for (let pass = 0; pass < 4 && items.length >= LEAST; pass++) {
      const folded = this.once(items, module);
      if (folded.length === items.length) break;
      items = folded;
    }
    return items;
  }

  private once(items: (Draft | number)[], module: number): (Draft | number)[] {
    const signs = new Int32Array(items.length);
    for (let k = 0; k < items.length; k++) signs[k] = this.sign(items[k]!);
    // Of places on one line, a module's call rather than a node.
    const line = (at: number): number => 2 * this.line(items[at]!) + (typeof items[at] === "number" ? 1 : 0);
    const out: (Draft | number)[] = [];
    let at = 0;
    for (const { start, period, times } of repeats(signs, { least: LEAST, longest: MOST }, line)) {
      const head = items[start]!;
      const block = period === 1 && typeof head !== "number" && head.kind === "module" && size(head) > 1;
      if (!block && period * times <= FEW) continue;
      while (at < start) out.push(items[at++]!);
      const run = draft("run", module);
      run.times = times;
      run.period = period;
      for (let k = 0; k < times; k++, at += period) {
        if (period === 1) run.items.push(items[at]!);
        else {
          const body = items.slice(at, at + period);
          const turn = draft("turn", module, period > FEW ? this.folded(body, module) : body);
          turn.first = k;
          turn.of = times;
          run.items.push(turn);
        }
      }
      run.sign = this.intern(`run ${times} ${Array.from(signs.subarray(start, start + period)).join(",")}`);
      run.items = paged(run.items, module);
      out.push(run);
    }
    while (at < items.length) out.push(items[at++]!);
    return out;
  }

  /** Nodes of one call of a torch function, which come one after the other, as one. */
  private byLine(items: (Draft | number)[], module: number): (Draft | number)[] {
    const { op, site } = this.facts.nodes;
    const out: (Draft | number)[] = [];
    let at = 0;
    while (at < items.length) {
      const head = items[at]!;
      let end = at + 1;
      if (typeof head === "number") {
        for (; end < items.length; end++) {
          const next = items[end]!;
          if (typeof next !== "number" || op[next] !== op[head] || site[next] !== site[head]) break;
        }
      }
      out.push(end - at > 1 ? draft("line", module, items.slice(at, end)) : head);
      at = end;
    }
    return out;
  }

  private sign(item: Draft | number): number {
    if (typeof item !== "number") return item.sign;
    const { name, op, strings } = this.facts.nodes;
    const key = name[item]! * strings.length + op[item]!;
    let sign = this.ofNode.get(key);
    if (sign === undefined) {
      sign = this.intern(`node ${key}`);
      this.ofNode.set(key, sign);
    }
    return sign;
  }

  private intern(text: string): number {
    let sign = this.signs.get(text);
    if (sign === undefined) {
      sign = this.signs.size;
      this.signs.set(text, sign);
    }
    return sign;
  }

  private line(item: Draft | number): number {
    let at: Draft | number | undefined = item;
    while (typeof at === "object") at = at.items[0];
    return at === undefined ? -1 : this.facts.line(this.facts.nodes.site[at]!);
  }
}

function size(group: Draft): number {
  return group.items.length;
}

/** At most `MOST` entries: parts of a list, and parts of parts. */
export function paged(items: readonly (Draft | number)[], module: number): (Draft | number)[] {
  const of = items.length;
  let level: { item: Draft | number; count: number }[] = items.map((item) => ({ item, count: 1 }));
  while (level.length > MOST) {
    const pages = Math.ceil(level.length / PART);
    const above: typeof level = [];
    let first = 0;
    for (let k = 0; k < pages; k++) {
      const some = level.slice(Math.floor((k * level.length) / pages), Math.floor(((k + 1) * level.length) / pages));
      const count = some.reduce((sum, one) => sum + one.count, 0);
      const part = draft(
        "part",
        module,
        some.map((one) => one.item),
      ); // prettier-ignore
      part.first = first;
      part.of = of;
      first += count;
      above.push({ item: part, count });
    }
    level = above;
  }
  return level.map((one) => one.item);
}
