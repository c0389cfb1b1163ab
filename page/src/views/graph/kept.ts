import type { Model, Nodes } from "../../data/model";

export interface Shares {
  /** By node: bytes. What an op at a line of a module keeps is shared out evenly among the nodes that it made. */
  ofNode: Float64Array;
  /** Sums over modules before each, so that a module with those in it is a difference. */
  ofModule: Float64Array;
}

/** Bytes kept for backward, of modules and of nodes; null where they were not recorded. */
export function shareBytes(model: Model, nodes: Nodes): Shares | null {
  const memory = model.doc.memory;
  if (!memory) return null;
  const { modules } = model.doc;
  const ofModule = new Float64Array(modules.length + 1);
  const rows = new Map<string, { bytes: number; nodes: number[] }>();
  for (const { module, site, op, bytes } of memory.rows) {
    ofModule[Math.max(0, module) + 1]! += bytes;
    const key = `${Math.max(0, module)} ${site} ${op}`;
    const row = rows.get(key);
    if (row) row.bytes += bytes;
    else rows.set(key, { bytes, nodes: [] });
  }
  for (let m = 0; m < modules.length; m++) ofModule[m + 1]! += ofModule[m]!;
  for (let i = 0; i < nodes.name.length; i++) {
    if (nodes.seq[i]! < 0) continue;
    rows.get(`${Math.max(0, nodes.module[i]!)} ${nodes.site[i]!} ${nodes.strings[nodes.op[i]!]}`)?.nodes.push(i);
  }
  const ofNode = new Float64Array(nodes.name.length);
  for (const { bytes, nodes: makers } of rows.values()) for (const node of makers) ofNode[node] = bytes / makers.length;
  return { ofNode, ofModule };
}
