import { useMemo } from "preact/hooks";
import type { Model } from "../../data/model";
import { meanSaid } from "../../data/said";
import { bytes, norm, seconds } from "../../parts/words";
import type { ViewProps } from "../view";
import { type Costs, MARKS, nodesAt } from "./costs";

interface Props {
  model: Model;
  /** Index of the call. */
  number: number;
  file: string;
  /** 0: none is chosen. */
  line: number;
  found: Costs;
  link: ViewProps["link"];
}

const FEW = 4;

/** What is known of the chosen line. */
export function About({ model, number, file, line, found, link }: Props) {
  const call = model.doc.calls[number];
  const nodes = useMemo(() => (call && line > 0 ? nodesAt(model, call, file, line) : null), [model, call, file, line]);
  const layout = call && model.nodes(call);
  const timed = meanSaid(layout?.timed ?? 0);
  if (line === 0 || line >= found.nodes.length) {
    const library = model.doc.sources.some((one) => one.file === file && one.library);
    const counts = library
      ? "a line counts the operations that were called through it, and through no line further in of its file."
      : "a line counts what its operations do in backward.";
    return (
      <p class="source-about quiet">
        Choose a line to see its nodes. Gradients are those of the backward call of the step above
        {timed && `, times are ${timed.startsWith("mean") ? "the " : ""}${timed} with its graph`}; {counts}
      </p>
    );
  }
  const total = layout ? Array.from(layout.time).reduce((sum, one) => sum + Math.max(0, one), 0) : 0;
  const time = found.time[line]!;
  const marks = MARKS.filter((one) => found.marks[line]! & one.bit);
  const roles = found.roles.get(line) ?? [];
  return (
    <div class="source-about" role="region" aria-label={`Line ${line}`}>
      <b>Line {line}</b>
      {nodes && nodes.names.length > 0 ? (
        <>
          <span>{few(nodes.names.map(([name, n]) => (n > 1 ? `${name} ×${n.toLocaleString("en-US")}` : name)))}</span>
          <span>
            {time < 0 ? "time not measured" : `${seconds(time)} in backward, ${timed}`}
            {time >= 0 && total > 0 && ` (${((100 * time) / total).toPrecision(2)}% of all nodes' time)`}
          </span>
          <span>greatest gradient {norm(found.came[line])}</span>
        </>
      ) : (
        <span class="quiet">no node of this call comes from it</span>
      )}
      {found.kept[line]! > 0 && <span>{bytes(found.kept[line]!)} kept for backward</span>}
      {nodes && nodes.modules.length > 0 && (
        <span>
          in <span class="mono">{few(nodes.modules)}</span>
        </span>
      )}
      {marks.map((one) => (
        <span key={one.bit} class={one.bit === 8 ? "quiet" : "source-bad"}>
          {one.sign} {one.long}
        </span>
      ))}
      {roles.map((one) => (
        <a key={`${one.finding} ${one.role}`} href={link("findings", { finding: String(one.finding) })}>
          {one.role} of finding {one.finding + 1}
        </a>
      ))}
      {nodes && nodes.site >= 0 && (
        <a href={link("graph", { call: String(number), site: String(nodes.site) })}>show in the graph</a>
      )}
    </div>
  );
}

function few(items: readonly string[]): string {
  return items.length <= FEW ? items.join(", ") : `${items.slice(0, FEW).join(", ")} and ${items.length - FEW} more`;
}
