/** One search over everything that the page has: findings, parameters, modules, lines, operations, steps. */

import type { Model } from "./model";
import { shapeSaid } from "./said";
import { callAt, nearest } from "./step";

export interface Hit {
  what: "finding" | "step" | "parameter" | "module" | "operation" | "line";
  text: string;
  detail: string;
  /** Where it is shown. */
  view: string;
  at: Record<string, string>;
}

/** Hits of one sort that are shown. */
export const EACH = 8;

export interface Found {
  hits: Hit[];
  /** By sort, how many there are beside those shown. */
  more: [Hit["what"], number][];
}

/** What has all words of the query in it; numbers of steps are found by themselves and after "step". */
export function search(model: Model, query: string, at: Readonly<Record<string, string>> = {}): Found {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found: Found = { hits: [], more: [] };
  if (words.length === 0) return found;
  const has = (...texts: string[]): boolean => {
    const text = texts.join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  for (const list of [findings, steps, parameters, modules, operations, lines]) {
    const made = list(model, has, query, at);
    if (made.length > EACH) found.more.push([made[0]!.what, made.length - EACH]);
    found.hits.push(...made.slice(0, EACH));
  }
  return found;
}

type Lister = (
  model: Model,
  has: (...texts: string[]) => boolean,
  query: string,
  at: Readonly<Record<string, string>>,
) => Hit[];

const findings: Lister = ({ doc }, has) =>
  doc.findings.flatMap(({ kind, title, step, module, tensor, parameters }, i): Hit[] =>
    has(kind, title, module ?? "", tensor ?? "", parameters.join(" "))
      ? [
          {
            what: "finding",
            text: title,
            detail: kind,
            view: "findings",
            at: { finding: String(i), ...(step === null ? {} : { step: String(step) }) },
          },
        ]
      : [],
  );

const steps: Lister = ({ doc }, _, query) => {
  const number = /^\s*(?:step\s*)?(\d+)\s*$/i.exec(query)?.[1];
  const { index } = doc.steps;
  const i = number === undefined ? -1 : nearest(index, Number(number));
  if (i < 0) return [];
  const detail = index[i] === Number(number) ? "" : `the nearest to ${number}`;
  return [{ what: "step", text: `step ${index[i]}`, detail, view: "steps", at: { step: String(index[i]) } }];
};

const parameters: Lister = ({ doc }, has) =>
  doc.parameters.flatMap((p, i): Hit[] =>
    has(p.name)
      ? [{ what: "parameter", text: p.name, detail: shapeSaid(p.shape), view: "flow", at: { parameter: String(i) } }]
      : [],
  );

const modules: Lister = ({ doc }, has) =>
  doc.modules.flatMap((m, i): Hit[] =>
    i > 0 && has(m.path, m.class)
      ? [{ what: "module", text: m.path, detail: m.class, view: "graph", at: { module: String(i) } }]
      : [],
  );

/** Sorts of nodes of the call that the page shows now. */
const operations: Lister = (model, has, _, at) => {
  const number = callAt(model, at);
  const call = model.doc.calls[number];
  if (!call) return [];
  const { name, op, strings } = model.nodes(call);
  const found = new Map<string, { hit: Hit; count: number }>();
  for (let i = 0; i < name.length; i++) {
    const [type, made] = [strings[name[i]!]!, strings[op[i]!] ?? ""];
    const key = `${type} ${made}`;
    const known = found.get(key);
    if (known) known.count++;
    else if (has(type, made)) {
      const text = made ? `${made} (${type})` : type;
      const there = { step: String(call.step), call: String(number), node: String(i) };
      found.set(key, { hit: { what: "operation", text, detail: "", view: "graph", at: there }, count: 1 });
    }
  }
  return [...found.values()].map(({ hit, count }) => ({ ...hit, detail: count > 1 ? `${count} nodes` : "1 node" }));
};

const lines: Lister = ({ doc }, has) =>
  doc.sources.flatMap(({ file, lines }) =>
    lines.flatMap((text, i): Hit[] =>
      has(text, `${file}:${i + 1}`)
        ? [
            {
              what: "line",
              text: text.trim() || "(empty)",
              detail: `${file}:${i + 1}`,
              view: "source",
              at: { file, line: String(i + 1) },
            },
          ]
        : [],
    ),
  );
