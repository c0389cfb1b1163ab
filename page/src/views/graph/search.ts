import type { Hierarchy } from "./hierarchy";
import { nodeFacts } from "./names";

export interface Hit {
  box: number;
  what: "module" | "parameter" | "node";
  text: string;
  detail: string;
}

/** Modules, parameters and nodes whose name, op or line has the text in it: at most `most` hits, and how many of these there are. */
export function search(h: Hierarchy, query: string, most = 60): { hits: Hit[]; total: number } {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return { hits: [], total: 0 };
  const { doc } = h.model;
  const hits: Hit[] = [];
  let total = 0;
  const take = (hit: () => Hit): void => {
    total++;
    if (hits.length < most) hits.push(hit());
  };
  doc.modules.forEach((module, m) => {
    const calls = h.modules.get(m);
    if (m === 0 || !calls || !`${module.path} ${module.class}`.toLowerCase().includes(wanted)) return;
    const detail = module.class + (calls.length > 1 ? `, ${calls.length} calls` : "");
    take(() => ({ box: calls[0]!, what: "module", text: module.path, detail }));
  });
  const inParameter = Uint8Array.from(doc.parameters, (p) => (p.name.toLowerCase().includes(wanted) ? 1 : 0));
  doc.parameters.forEach((p, k) => {
    const cut = h.cuts.get(k);
    if (cut !== undefined && inParameter[k]) {
      take(() => ({ box: cut, what: "parameter", text: p.name, detail: "no gradient" }));
    }
  });
  const { hits: nodes, total: inNodes } = searchNodes(h, wanted, inParameter, most);
  return { hits: [...hits, ...nodes].slice(0, most), total: total + inNodes };
}

/** Leaves of parameters that are wanted, then nodes; those of the same op at the same line of a module are one hit. */
function searchNodes(
  h: Hierarchy,
  wanted: string,
  inParameter: Uint8Array,
  most: number,
): { hits: Hit[]; total: number } {
  const { doc } = h.model;
  const { strings, name, op, site, parameter, module } = h.nodes;
  const leaves: Hit[] = [];
  const found = new Map<string, { node: number; count: number }>();
  const inString = Uint8Array.from(strings, (text) => (text.toLowerCase().includes(wanted) ? 1 : 0));
  const inSite = Uint8Array.from(doc.sites, (s) => (`${s.file}:${s.line}`.toLowerCase().includes(wanted) ? 1 : 0));
  let total = 0;
  for (let place = 0; place < h.sequence.length; place++) {
    const node = h.sequence[place]!;
    const p = parameter[node]!;
    if (p >= 0 ? !inParameter[p] : !(inString[name[node]!] || inString[op[node]!] || inSite[site[node]!])) continue;
    total++;
    if (p >= 0) {
      if (leaves.length < most)
        leaves.push({ box: ~node, what: "parameter", text: doc.parameters[p]!.name, detail: "" });
      continue;
    }
    const key = `${name[node]} ${op[node]} ${site[node]} ${module[node]}`;
    const same = found.get(key);
    if (same) same.count++;
    else if (found.size < most) found.set(key, { node, count: 1 });
  }
  const nodes = Array.from(found.values(), ({ node, count }): Hit => {
    const facts = nodeFacts(h, node);
    const text = facts.type + (count > 1 ? ` ×${count.toLocaleString("en-US")}` : "");
    const detail = [h.model.name(module[node]!), facts.op, facts.place].filter(Boolean).join(" · ");
    return { box: ~node, what: "node", text, detail };
  });
  return { hits: [...leaves, ...nodes], total };
}
