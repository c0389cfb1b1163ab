/** The places along the chart's x axis: parameters or modules in forward order, and the brackets under them. */
import type { Model } from "../../data/model";

export interface Item {
  kind: "parameter" | "module";
  /** Index into `doc.parameters` or `doc.modules`. */
  index: number;
  name: string;
  /** The last part of its name. */
  short: string;
  module: number;
}

export function parameterItems(model: Model): Item[] {
  return model.doc.parameters.map((p, index) => ({
    kind: "parameter",
    index,
    name: p.name,
    short: p.name.slice(p.name.lastIndexOf(".") + 1),
    module: p.module,
  }));
}

/** Modules that are called: containers that only hold others return nothing. */
export function moduleItems(model: Model): Item[] {
  return model.doc.modules.flatMap((m, index) =>
    m.calls > 0
      ? [
          {
            kind: "module" as const,
            index,
            name: model.name(index),
            short: m.path.slice(m.path.lastIndexOf(".") + 1) || "(model)",
            module: index,
          },
        ]
      : [],
  );
}

export interface Bracket {
  /** Items `first` to `last`, both in. */
  first: number;
  last: number;
  label: string;
}

/**
 * Rows of brackets, the outermost modules first: neighbours whose names begin alike, part by part. By their names, as
 * parameters may be known where their modules are not. A row in which no bracket holds two items says nothing and is
 * left out; `rows` are kept at most.
 */
export function brackets(items: readonly Item[], rows: number): Bracket[][] {
  const paths = items.map((item) =>
    item.kind === "parameter" ? item.name.split(".").slice(0, -1) : item.module === 0 ? [] : item.name.split("."),
  );
  const deepest = paths.reduce((d, p) => Math.max(d, p.length), 0);
  const found: Bracket[][] = [];
  for (let depth = 1; depth <= deepest && found.length < rows; depth++) {
    const row: Bracket[] = [];
    let before = "";
    paths.forEach((path, i) => {
      const prefix = path.length < depth ? "" : path.slice(0, depth).join(".");
      const last = row[row.length - 1];
      if (prefix && last && prefix === before) last.last = i;
      else if (prefix) row.push({ first: i, last: i, label: path[depth - 1]! });
      before = prefix;
    });
    const above = found[found.length - 1];
    const same =
      above !== undefined &&
      row.length === above.length &&
      row.every((b, i) => b.first === above[i]!.first && b.last === above[i]!.last);
    // The same brackets one level down, as "encoder" and its only child "layer": one row names both.
    if (same) row.forEach((b, i) => (above[i] = { ...b, label: `${above[i]!.label}.${b.label}` }));
    else if (row.some((b) => b.last > b.first)) found.push(row);
  }
  return found;
}

/** The fewest items that a zoom shows. */
export const CLOSEST = 4;
