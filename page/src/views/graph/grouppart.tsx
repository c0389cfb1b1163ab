import { useState } from "preact/hooks";
import { shapeSaid } from "../../data/said";
import { Name } from "../../parts/name";
import { saveCsv } from "../../parts/save";
import { bytes as bytesText, count, norm, number, seconds } from "../../parts/words";
import { BAD, FORWARD, MADE, RAISED, ZERO } from "./metrics";
import { briefName, nameOf } from "./names";
import { Facts, Go, type PartProps, Place, timeSaid } from "./panel";
import type { Scene } from "./scene";
import { childRows, type RowKey, sorted } from "./tables";

const MOST = 60;

/** What is known of a group, and what is in it. */
export function GroupPart(props: PartProps) {
  const { scene, box, link } = props;
  const { h, metrics } = scene;
  const group = h.groups[box]!;
  const { doc } = h.model;
  const module = doc.modules[group.module];
  const { title, kind } = nameOf(h, box);
  const nodes = group.end - group.start;
  const { bytes, shared } = metrics.bytes(box);
  const calls = h.modules.get(group.module)?.length ?? 0;
  const output = metrics.output(box);
  const run = metrics.run(box);
  const isModule = group.kind === "module" && box > 0;
  return (
    <>
      <h2 class="mono">
        {isModule ? module!.path + (group.nth ? `:${group.nth}` : "") : box === 0 ? "The whole graph" : title}
      </h2>
      {box === 0 ? (
        <About scene={scene} />
      ) : (
        <p class="quiet">
          {[kind, isModule && calls > 1 ? `call ${group.nth} of ${calls} in this graph` : ""]
            .filter(Boolean)
            .join(", ")}
        </p>
      )}
      <Trouble {...props} />
      <Facts
        rows={[
          ["Gradient in", <b>{norm(metrics.gradient(box))}</b>],
          ...(isModule
            ? [["Output", output < 0 ? "not measured" : `norm ${norm(output)}${metrics.outputStep}`] as const]
            : []),
          ["Time", timeSaid(metrics, box)],
          [
            "Nodes",
            run === nodes
              ? nodes.toLocaleString("en-US")
              : `${nodes.toLocaleString("en-US")}, ${run.toLocaleString("en-US")} ran`,
          ],
          ["Kept", bytes < 0 ? "not recorded" : `${shared ? "about " : ""}${bytesText(Math.round(bytes))}`],
          ...(isModule ? [["Called at", <Place scene={scene} site={module!.site} link={link} />] as const] : []),
        ]}
      />
      <Children {...props} />
      <Parameters {...props} />
    </>
  );
}

function About({ scene }: { scene: Scene }) {
  const { call } = scene;
  const { index, scale } = scene.h.model.doc.steps;
  const scaled = (scale[index.indexOf(call.step)] ?? 1) === 1 ? "" : " with the GradScaler's factor";
  const values = call.roots.flatMap(({ value }) => (value === null ? [] : [number(value)]));
  return (
    <>
      <p class="quiet">
        {`${call.kind}, step ${call.step}${values.length ? `, loss${scaled} ${values.join(", ")}` : ""}, ${seconds(call.seconds)}. Click a box to open it; click its triangle to close it.`}
      </p>
      {call.raised && <p class="graph-finding">{`It raised ${call.raised}`}</p>}
    </>
  );
}

/** Marks inside a group, each with the node where it began. */
function Trouble({ scene, box, go }: PartProps) {
  const { h, metrics, call } = scene;
  const { start, end } = h.groups[box]!;
  const kinds = [
    [RAISED, "raised an error"],
    [MADE, "made the first gradient that is not finite"],
    [BAD, "got gradients that are not finite"],
    [FORWARD, "had results in the forward that are not finite"],
    [ZERO, "got gradients that are exactly zero"],
  ] as const;
  // In the forward what was made first is the cause; in the backward, what ran first.
  const first = (bit: number): number => {
    let best = -1;
    for (let place = start; place < end; place++) {
      const node = h.sequence[place]!;
      if (!(call.marks[node]! & bit)) continue;
      const earlier = bit === FORWARD ? h.nodes.seq : call.order;
      if (best < 0 || earlier[node]! < earlier[best]!) best = node;
    }
    return best;
  };
  const found = kinds.filter(([bit]) => metrics.count(bit, box) > 0);
  if (found.length === 0) return null;
  return (
    <ul class="graph-notes">
      {found.map(([bit, words]) => {
        const n = metrics.count(bit, box);
        return (
          <li key={bit}>
            {`${count(n, "node")} ${words}${n > 1 ? "; the first is" : ":"} `}
            <Go scene={scene} box={~first(bit)} go={go} name={briefName(h, first(bit))} />
          </li>
        );
      })}
    </ul>
  );
}

function Children({ scene, box, go }: PartProps) {
  const [by, setBy] = useState<RowKey | null>(null);
  const rows = sorted(childRows(scene, box), by);
  const bytes = rows.some((row) => row.bytes > 0);
  const columns: [RowKey, string][] = [
    ["name", "inside"],
    ["nodes", "nodes"],
    ["gradient", "gradient"],
    ["seconds", "time"],
    ...(bytes ? [["bytes", "kept"] as [RowKey, string]] : []),
  ];
  const save = (): void => {
    saveCsv(
      "graph-group.csv",
      ["name", "nodes", "gradient norm", "mean seconds", "bytes kept"],
      rows.map((r) => [r.name, r.nodes, r.gradient, r.seconds, Math.round(r.bytes)]),
    );
  };
  if (rows.length === 0) return null;
  return (
    <div class="graph-scroll">
      <table class="graph-table">
        <caption>
          {`What is inside, ${by === null ? "in forward order" : `by ${by}`} `}
          <button type="button" onClick={save}>
            CSV
          </button>
        </caption>
        <thead>
          <tr>
            {columns.map(([key, name]) => (
              <th
                key={key}
                scope="col"
                class={key === "name" ? "" : "number"}
                aria-sort={by === key ? (key === "name" ? "ascending" : "descending") : "none"}
              >
                <button type="button" onClick={() => setBy(by === key ? null : key)}>
                  {name + (by === key ? (key === "name" ? " ▴" : " ▾") : "")}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.box}>
              <td>
                <Go scene={scene} box={row.box} go={go} name={row.name} most={15} />
              </td>
              <td class="number">{row.nodes.toLocaleString("en-US")}</td>
              <td class="number">{norm(row.gradient)}</td>
              <td class="number">{row.seconds < 0 ? "–" : seconds(row.seconds)}</td>
              {bytes && <td class="number">{row.bytes < 0 ? "–" : bytesText(Math.round(row.bytes))}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Parameters({ scene, box, go }: PartProps) {
  const { h, call } = scene;
  const group = h.groups[box]!;
  if (group.kind !== "module") return null;
  const { doc } = h.model;
  const inside = doc.parameters.flatMap((p, k) => (h.model.within(Math.max(0, p.module), group.module) ? [k] : []));
  if (inside.length === 0) return null;
  return (
    <div class="graph-scroll">
      <table class="graph-table">
        <caption>{count(inside.length, "parameter")}</caption>
        <thead>
          <tr>
            <th scope="col">name</th>
            <th scope="col">shape</th>
            <th scope="col" class="number">
              gradient
            </th>
          </tr>
        </thead>
        <tbody>
          {inside.slice(0, MOST).map((k) => {
            const { name, shape, requires_grad } = doc.parameters[k]!;
            const node = h.leaves[k]!;
            const target = node >= 0 ? ~node : h.cuts.get(k);
            const prefix = doc.modules[group.module]!.path;
            const short = prefix && name.startsWith(`${prefix}.`) ? name.slice(prefix.length + 1) : name;
            return (
              <tr key={k}>
                <td>
                  {target === undefined ? (
                    <span class="mono">
                      <Name text={short} />
                    </span>
                  ) : (
                    <button type="button" class="graph-go" title={name} onClick={() => go(target)}>
                      <Name text={short} />
                    </button>
                  )}
                </td>
                <td class="mono">{shapeSaid(shape)}</td>
                <td class="number">{node >= 0 ? norm(call.came[node]) : requires_grad ? "✂ none" : "frozen"}</td>
              </tr>
            );
          })}
          {inside.length > MOST && (
            <tr>
              <td colSpan={3} class="quiet">{`and ${(inside.length - MOST).toLocaleString("en-US")} more`}</td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** Parameters that got no gradient, and why. */
export function CutPart({ scene, box, link, go }: PartProps) {
  const { h } = scene;
  const { doc } = h.model;
  const cut = scene.cut(box);
  const { parameters } = h.groups[box]!;
  return (
    <>
      <h2 class="mono">{nameOf(h, box).title}</h2>
      <p class="graph-finding">
        {cut.finding ? <a href={link("findings", { finding: String(cut.number) })}>{cut.text}</a> : cut.text}
      </p>
      {cut.finding && <p>{cut.finding.advice}</p>}
      <Facts
        rows={[
          ["Cut at", <Place scene={scene} site={cut.site} link={link} />],
          [
            "Would join",
            cut.node < 0 ? "not known" : <Go scene={scene} box={~cut.node} go={go} name={briefName(h, cut.node)} />,
          ],
        ]}
      />
      <table class="graph-table">
        <caption>{`${count(parameters.length, "parameter")} without gradient in this call`}</caption>
        <thead>
          <tr>
            <th scope="col">name</th>
            <th scope="col">shape</th>
            <th scope="col" class="number">
              calls that reached it
            </th>
          </tr>
        </thead>
        <tbody>
          {parameters.slice(0, MOST).map((k) => (
            <tr key={k}>
              <td class="mono">{doc.parameters[k]!.name}</td>
              <td class="mono">{shapeSaid(doc.parameters[k]!.shape)}</td>
              <td class="number">{doc.parameters[k]!.reached.toLocaleString("en-US")}</td>
            </tr>
          ))}
          {parameters.length > MOST && (
            <tr>
              <td colSpan={3} class="quiet">{`and ${(parameters.length - MOST).toLocaleString("en-US")} more`}</td>
            </tr>
          )}
        </tbody>
      </table>
    </>
  );
}
