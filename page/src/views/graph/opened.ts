import type { Hierarchy } from "./hierarchy";

/** Boxes of a first picture: enough to see a shape, few enough to read. */
const READABLE = 9;

/** Groups that are open when nobody has opened any: the largest modules, until there is something to look at. */
export function firstOpened(h: Hierarchy): Set<number> {
  const open = new Set([0]);
  const shown = new Set<number>(h.groups[0]!.items);
  while (shown.size < READABLE) {
    let largest = -1;
    for (const box of shown) {
      if (box < 0 || h.groups[box]!.kind !== "module" || h.groups[box]!.items.length < 2) continue;
      const size = h.groups[box]!.end - h.groups[box]!.start;
      if (largest < 0 || size > h.groups[largest]!.end - h.groups[largest]!.start) largest = box;
    }
    if (largest < 0 || shown.size + h.groups[largest]!.items.length > 4 * READABLE) break;
    open.add(largest);
    shown.delete(largest);
    for (const item of h.groups[largest]!.items) shown.add(item);
  }
  return open;
}

/** From the address; without a word there, what is open at first. */
export function opened(h: Hierarchy, text: string | undefined): Set<number> {
  if (text === undefined || text === "") return firstOpened(h);
  const open = new Set([0]);
  for (const word of text.split("-")) {
    const id = Number.parseInt(word, 36);
    if (id > 0 && id < h.groups.length) open.add(id);
  }
  return open;
}

/** For the address. Those inside closed groups are kept: they are open again when the group is. */
export function written(open: ReadonlySet<number>): string {
  const ids = [...open].filter((id) => id !== 0).sort((a, b) => a - b);
  return ids.map((id) => id.toString(36)).join("-") || "0";
}

/** Open all groups around a box, so that it is seen. */
export function reveal(h: Hierarchy, open: ReadonlySet<number>, box: number): Set<number> {
  const more = new Set(open);
  for (let id = h.around(box); id >= 0; id = h.groups[id]!.parent) more.add(id);
  return more;
}

/** Boxes in the order of the forward with their depths: what a picture or an outline shows. */
export function visible(h: Hierarchy, open: ReadonlySet<number>): { box: number; level: number }[] {
  const rows: { box: number; level: number }[] = [];
  const stack = Array.from(h.groups[0]!.items, (box) => ({ box, level: 1 })).reverse();
  while (stack.length) {
    const row = stack.pop()!;
    rows.push(row);
    if (row.box < 0 || !open.has(row.box)) continue;
    const items = h.groups[row.box]!.items;
    for (let k = items.length - 1; k >= 0; k--) stack.push({ box: items[k]!, level: row.level + 1 });
  }
  return rows;
}
