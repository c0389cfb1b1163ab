/** The places along the chart's x axis: parameters or modules in forward order, and the brackets under them. */
import type { Model } from "../../data/model";

export interface Item {
  /** Index into `doc.parameters` or `doc.modules`. */
  index: number;
  name: string;
  /** The last part of its name. */
  short: string;
  module: number;
}

export function parameterItems(model: Model): Item[] {
  return model.doc.parameters.map((p, index) => ({ index, name: p.name, short: p.name.slice(p.name.lastIndexOf(".") + 1), module: p.module }));
}

/** Modules that are called: containers that only hold others return nothing. */
export function moduleItems(model: Model): Item[] {
  return model.doc.modules.flatMap((m, index) =>
    m.calls > 0 ? [{ index, name: model.name(index), short: m.path.slice(m.path.lastIndexOf(".") + 1) || "(model)", module: index }] : [],
  );
}

export interface Bracket {
  /** Items `first` to `last`, both in. */
  first: number;
  last: number;
  module: number;
  label: string;
}

/**
 * Rows of brackets, the outermost modules first: items that lie in the same module at a depth, one after the other.
 * A row in which no bracket holds two items says nothing and is left out; `rows` are kept at most.
 */
export function brackets(model: Model, items: readonly Item[], rows: number): Bracket[][] {
  const chains = items.map((item) => chain(model, item.module));
  const deepest = chains.reduce((d, c) => Math.max(d, c.length), 0);
  const found: Bracket[][] = [];
  for (let depth = 1; depth < deepest && found.length < rows; depth++) {
    const row: Bracket[] = [];
    chains.forEach((path, i) => {
      const module = path[depth];
      if (module === undefined) return;
      const last = row[row.length - 1];
      if (last?.module === module && last.last === i - 1) last.last = i;
      else row.push({ first: i, last: i, module, label: part(model, module) });
    });
    const before = found[found.length - 1];
    const news = !before || row.length !== before.length || row.some((b, i) => b.first !== before[i]!.first || b.last !== before[i]!.last);
    if (news && row.some((b) => b.last > b.first)) found.push(row);
    else if (before && !news) {
      // The same brackets one level down, as "encoder" and its only child "layer": one row names both.
      row.forEach((b, i) => (before[i] = { ...b, label: `${before[i]!.label}.${b.label}` }));
    }
  }
  return found;
}

function chain(model: Model, module: number): number[] {
  const up: number[] = [];
  for (let m = module; m >= 0; m = model.doc.modules[m]!.parent) up.push(m);
  return up.reverse();
}

/** A module's own part of its path. */
function part(model: Model, module: number): string {
  const { path, parent } = model.doc.modules[module]!;
  const above = parent >= 0 ? model.doc.modules[parent]!.path : "";
  return above ? path.slice(above.length + 1) : path;
}

/** A window of items that a zoom shows: kept inside 0..count, at least `least` long. */
export function clampWindow(first: number, last: number, count: number, least = 4): [number, number] {
  const size = Math.min(Math.max(last - first, Math.min(least, count)), count);
  const from = Math.min(Math.max(first, 0), count - size);
  return [from, from + size];
}

/** The window zoomed by `factor` (below 1: closer) about the item at `centre`. */
export function zoomWindow(first: number, last: number, centre: number, factor: number, count: number): [number, number] {
  return clampWindow(centre - (centre - first) * factor, centre + (last - centre) * factor, count);
}
