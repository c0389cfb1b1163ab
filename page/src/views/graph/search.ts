import type { Hierarchy } from "./hierarchy";
import { nodeFacts } from "./names";

export interface Hit {
  box: number;
  what: "module" | "parameter" | "node";
  text: string;
  detail: string;
}

/** Modules, parameters and nodes whose name, op or line has the text in it: the first `most`, and how many there are. */
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
  const { strings, name, op, site, parameter } = h.nodes;
  const inString = Uint8Array.from(strings, (text) => (text.toLowerCase().includes(wanted) ? 1 : 0));
  const inSite = Uint8Array.from(doc.sites, (s) => (`${s.file}:${s.line}`.toLowerCase().includes(wanted) ? 1 : 0));
  const inParameter = Uint8Array.from(doc.parameters, (p) => (p.name.toLowerCase().includes(wanted) ? 1 : 0));
  doc.parameters.forEach((p, k) => {
    const cut = h.cuts.get(k);
    if (cut !== undefined && inParameter[k]) {
      take(() => ({ box: cut, what: "parameter", text: p.name, detail: "no gradient" }));
    }
  });
  for (const leaves of [true, false]) {
    for (const node of h.sequence) {
      const p = parameter[node]!;
      if (p >= 0 !== leaves) continue;
      if (leaves ? !inParameter[p] : !(inString[name[node]!] || inString[op[node]!] || inSite[site[node]!])) continue;
      take(() => {
        if (leaves) return { box: ~node, what: "parameter", text: doc.parameters[p]!.name, detail: "" };
        const facts = nodeFacts(h, node);
        const module = h.model.name(h.groups[h.owner[node]!]!.module);
        return { box: ~node, what: "node", text: facts.type, detail: [facts.op, facts.place, module].filter(Boolean).join(" · ") };
      });
    }
  }
  return { hits, total };
}
