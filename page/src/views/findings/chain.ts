import type { Finding } from "../../data/document";
import type { Model } from "../../data/model";
import { Links } from "../graph/links";
import { BAD, FORWARD, MADE } from "../graph/metrics";
import { between } from "../graph/paths";

/** A node on the way from the cause of a finding to the root of its backward call. */
export interface ChainNode {
  /** Its number in the graph. */
  node: number;
  /** What made it: an operation, a parameter. */
  text: string;
  module: string;
  /** Its line, as an index into `sites`; -1: not known. */
  site: number;
  /** Its value or its gradient was not finite. */
  bad: boolean;
}

/** Nodes that are shown at either end of a longer way. */
const ENDS = 4;

/** A shortest way from the node of a finding to the loss, in the direction of the forward; a number stands for
 *  that many nodes that are left out. Empty: the page has no graph of it, or the node is the loss. */
export function chain(model: Model, finding: Finding): (ChainNode | number)[] {
  const call = model.doc.calls[finding.at?.[0] ?? -1];
  const own = finding.at?.[1] ?? -1;
  if (call === undefined || own < 0) return [];
  const nodes = model.nodes(call);
  const way = between(
    new Links(nodes),
    call.roots.map((root) => root.node).filter((node) => node >= 0),
    [own],
  );
  if (way === null || way.shortest.length < 2) return [];
  const found = way.shortest.toReversed().map((node): ChainNode => {
    const parameter = model.doc.parameters[nodes.parameter[node]!]?.name;
    return {
      node,
      text: parameter ?? (nodes.strings[nodes.op[node]!] || nodes.strings[nodes.name[node]!]!),
      module: model.name(nodes.module[node]!),
      site: nodes.site[node]!,
      bad: (call.marks[node]! & (BAD | MADE | FORWARD)) !== 0,
    };
  });
  return found.length <= 2 * ENDS + 1
    ? found
    : [...found.slice(0, ENDS), found.length - 2 * ENDS, ...found.slice(-ENDS)];
}
