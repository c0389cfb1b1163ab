import type { ComponentChildren } from "preact";
import { shapeSaid } from "../../data/said";
import { shorten } from "../../parts/names";
import { norm, seconds } from "../../parts/words";
import type { ViewProps } from "../view";
import { markWords } from "./cells";
import { endWord } from "./emphasis";
import { CutPart, GroupPart } from "./grouppart";
import { briefName, fullName, nodeFacts } from "./names";
import type { Scene } from "./scene";

export interface PartProps {
  scene: Scene;
  box: number;
  link: ViewProps["link"];
  go: (box: number) => void;
}

interface PanelProps extends PartProps {
  set: ViewProps["set"];
  /** Where paths start; "" is the loss. */
  from: string;
}

/** All that is known of the box that is chosen. */
export function Panel(props: PanelProps) {
  const { scene, box, set, from } = props;
  const group = box >= 0 ? scene.h.groups[box]! : null;
  return (
    <aside class="graph-panel" aria-label="About what is chosen">
      {group === null ? (
        <NodePart {...props} />
      ) : group.kind === "cut" ? (
        <CutPart {...props} />
      ) : (
        <GroupPart {...props} />
      )}
      {box !== 0 && (
        <p class="graph-actions">
          <button type="button" onClick={() => set({ to: endWord(box), site: "" }, true)}>
            {from === "" ? "Path from the loss to here" : "Path to here"}
          </button>
          <button type="button" onClick={() => set({ from: endWord(box) }, true)}>
            Start paths here
          </button>
        </p>
      )}
    </aside>
  );
}

/** Seconds of a box's nodes, and what they are. */
export function timeSaid(metrics: Scene["metrics"], box: number): string {
  const time = metrics.seconds(box);
  return time < 0 ? "not measured" : `${seconds(time)}, ${metrics.mean}`;
}

/** A line of the user's code, linked to where it is shown. */
export function Place({ scene, site, link }: { scene: Scene; site: number; link: ViewProps["link"] }) {
  const found = scene.h.model.doc.sites[site];
  if (!found) return <>–</>;
  return (
    <>
      <a href={link("source", { file: found.file, line: String(found.line) })}>{`${found.file}:${found.line}`}</a>
      {found.text && <code class="graph-line-text">{found.text.trim()}</code>}
    </>
  );
}

/** Names and values, one below the other. */
export function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="graph-facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A box that is named in a sentence or a table. */
export function Go({
  scene,
  box,
  go,
  most = 40,
  name,
}: {
  scene: Scene;
  box: number;
  go: (box: number) => void;
  most?: number;
  name?: string;
}) {
  const full = fullName(scene.h, box);
  return (
    <button type="button" class="graph-go" title={full} onClick={() => go(box)}>
      {shorten(name ?? full, most)}
    </button>
  );
}

function NodePart({ scene, box, link, go }: PartProps) {
  const { h, call, links, metrics } = scene;
  const node = ~box;
  const { type, op } = nodeFacts(h, node);
  const { doc } = h.model;
  const { seq, module, nth, site, parameter } = h.nodes;
  const p = doc.parameters[parameter[node]!];
  const path = h.model.name(p ? p.module : module[node]!);
  let around = h.owner[node]!;
  while (h.groups[around]!.kind !== "module") around = h.groups[around]!.parent;
  const marks = markWords(call.marks[node]!);
  const notes = call.notes[String(node)] ?? [];
  const { bytes } = metrics.bytes(box);
  const order = call.order[node]!;
  const findings = doc.findings
    .map((finding, number) => ({ finding, number }))
    .filter(({ finding }) => finding.at?.[0] === scene.number && finding.at[1] === node);
  return (
    <>
      <h2 class="mono">{p ? p.name : type}</h2>
      {p && <p class="quiet">{`${type}: adds the gradient to .grad, shape ${shapeSaid(p.shape)}`}</p>}
      {[...marks, ...notes].length > 0 && (
        <ul class="graph-notes">
          {[...marks, ...notes].map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
      {findings.map(({ finding, number }) => (
        <p class="graph-finding" key={number}>
          <a href={link("findings", { finding: String(number) })}>{finding.title}</a>
        </p>
      ))}
      <Facts
        rows={[
          [
            "Gradient in",
            <>
              <b>{norm(call.came[node])}</b> {call.words[call.shape[node]!] ?? ""}
            </>,
          ],
          [
            "Ran",
            order < 0
              ? "not in this call"
              : `${(order + 1).toLocaleString("en-US")} of ${metrics.run(0).toLocaleString("en-US")}`,
          ],
          [
            "Time",
            `${timeSaid(metrics, box)}${call.time[node]! < 0 ? "" : `; ${seconds(call.time[node]!)} in this one`}`,
          ],
          ["Forward op", op || "–"],
          ["Line", <Place scene={scene} site={p ? p.defined : site[node]!} link={link} />],
          [
            "Module",
            p?.free ? "on none" : around > 0 ? <Go scene={scene} box={around} go={go} name={path} /> : path || "–",
          ],
          ...(nth[node]! > 1 ? [["Call of it", String(nth[node])] as const] : []),
          ["Sequence no.", seq[node]! < 0 ? "none: it accumulates" : seq[node]!.toLocaleString("en-US")],
          ...(bytes > 0 ? [["Kept, about", `${Math.round(bytes).toLocaleString("en-US")} bytes`] as const] : []),
        ]}
      />
      <Edges scene={scene} node={node} go={go} out />
      <Edges scene={scene} node={node} go={go} out={false} />
      {links.edges[node] === links.edges[node + 1] && !p && <p class="quiet">No gradient goes on from here.</p>}
    </>
  );
}

/** Gradients of a node, edge by edge: those that it gave, or those that it got. */
function Edges({ scene, node, go, out }: { scene: Scene; node: number; go: (box: number) => void; out: boolean }) {
  const { links, call } = scene;
  const edges: number[] = [];
  if (out) for (let e = links.edges[node]!; e < links.edges[node + 1]!; e++) edges.push(e);
  else for (let k = links.into[node]!; k < links.into[node + 1]!; k++) edges.push(links.back[k]!);
  if (edges.length === 0) return null;
  const shown = edges.slice(0, 40);
  return (
    <table class="graph-table">
      <caption>{out ? "Gradients out" : "Gradients in"}</caption>
      <thead>
        <tr>
          <th scope="col">{out ? "to" : "from"}</th>
          <th scope="col" class="number">
            norm
          </th>
        </tr>
      </thead>
      <tbody>
        {shown.map((e) => {
          const other = out ? links.to[e]! : links.from[e]!;
          return (
            <tr key={e}>
              <td>
                {other < 0 ? (
                  <span class="quiet">needs no gradient</span>
                ) : (
                  <Go scene={scene} box={~other} go={go} name={briefName(scene.h, other)} most={34} />
                )}
              </td>
              <td class="number">{norm(call.out[e])}</td>
            </tr>
          );
        })}
        {edges.length > shown.length && (
          <tr>
            <td colSpan={2} class="quiet">{`and ${(edges.length - shown.length).toLocaleString("en-US")} more`}</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}
