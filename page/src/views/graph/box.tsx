import { Component } from "preact";
import { shorten } from "../../parts/names";
import { norm } from "../../parts/words";
import { type Cell, cells, signs } from "./cells";
import type { Metric } from "./metrics";
import { fullName, nameOf } from "./names";
import { colour, inkOn, look as lookOf } from "./scale";
import type { Scene } from "./scene";
import { BARS, chipsOf } from "./sizes";

export interface BoxProps {
  scene: Scene;
  metric: Metric;
  box: number;
  left: number;
  top: number;
  width: number;
  height: number;
  chosen: boolean;
  faded: boolean;
  onPath: boolean;
}

/** A closed group, a node or a parameter. Drawn again only when something about it has changed. */
export class BoxView extends Component<BoxProps> {
  override shouldComponentUpdate(next: BoxProps): boolean {
    return (Object.keys(next) as (keyof BoxProps)[]).some((key) => next[key] !== this.props[key]);
  }

  override render({ scene, metric, box, left, top, width, height, chosen, faded, onPath }: BoxProps) {
    const { h, metrics } = scene;
    const group = box >= 0 ? h.groups[box]! : null;
    const leaf = group === null && h.nodes.seq[~box]! < 0;
    const { title, kind } = nameOf(h, box);
    const nodes = group ? group.end - group.start : 0;
    const about =
      group && group.kind !== "cut"
        ? [kind, nodes > 1 ? nodes.toLocaleString("en-US") : ""].filter(Boolean).join(" · ")
        : "";
    const room = Math.floor((width - (group ? 30 : 20)) / 7.1);
    const name = shorten(title, about ? Math.max(14, room - Math.min(about.length, 16) - 1) : room);
    const type = ["graph-box", leaf ? "graph-leaf" : group ? `graph-${group.kind}` : "graph-node"];
    if (group?.kind === "cut" && scene.cut(box).finding) type.push("graph-cutfound");
    if (chosen) type.push("graph-chosen");
    if (faded) type.push("graph-faded");
    if (onPath) type.push("graph-onpath");
    const badges = signs(metrics, box, metric);
    return (
      <g class={type.join(" ")} data-box={box} transform={`translate(${left},${top})`}>
        <title>{`${fullName(h, box)}${nodes > 1 ? `\n${nodes.toLocaleString("en-US")} nodes` : ""}`}</title>
        {group?.kind === "run" && <rect class="graph-behind" x={4} y={4} width={width} height={height} rx={6} />}
        <rect class="graph-back" width={width} height={height} rx={leaf ? 12 : 6} />
        {group && group.kind !== "cut" && <path class="graph-more" d="M10,10 l5,4 l-5,4 z" />}
        <text class="graph-title" x={group && group.kind !== "cut" ? 21 : 10} y={18}>
          {name}
        </text>
        {about && (
          <text class="graph-kind" x={width - 9} y={18}>
            {shorten(about, Math.max(6, room - name.length - 1))}
          </text>
        )}
        {group?.kind === "cut" ? (
          <CutText scene={scene} box={box} />
        ) : (
          <Halves {...cells(metrics, scene.scale(metric), box)} width={width} leaf={leaf} />
        )}
        {group?.kind === "run" && <Bars scene={scene} metric={metric} box={box} width={width} y={height - BARS - 4} />}
        <Chips scene={scene} box={box} width={width} y={height - 23} />
        {badges.map((badge, k) => (
          <g
            class={badge.bad ? "graph-badge" : "graph-badge graph-badge-mild"}
            transform={`translate(${width - 84 * (k + 1)},-9)`}
            key={badge.text}
          >
            <title>{badge.title}</title>
            <rect width={80} height={16} rx={8} />
            <text x={40} y={11.5}>
              {badge.text}
            </text>
          </g>
        ))}
      </g>
    );
  }
}

function CutText({ scene, box }: { scene: Scene; box: number }) {
  const cut = scene.cut(box);
  const where = scene.h.model.place(cut.site);
  const text = cut.never ? `✂ no gradient${where ? `: cut at ${where}` : ""}` : "✂ not in this call's graph";
  return (
    <text class={cut.finding ? "graph-cuttext graph-cutfound" : "graph-cuttext"} x={10} y={38}>
      {shorten(text, 34)}
    </text>
  );
}

/** Forward on the left, backward on the right. */
export function Halves(p: { forward: Cell; backward: Cell; width: number; leaf?: boolean }) {
  const middle = p.leaf ? 8 : Math.round(p.width * 0.54);
  return (
    <>
      {!p.leaf && <Half cell={p.forward} x={8} width={middle - 12} sign="↓" side="forward" />}
      <Half cell={p.backward} x={middle} width={p.width - middle - 8} sign="↑" side="backward" />
    </>
  );
}

export function Half(p: { cell: Cell; x: number; width: number; sign: string; side: string; y?: number }) {
  const { look } = p.cell;
  const on = look?.kind === "on" ? look.at : null;
  const text = `${p.sign} ${p.cell.text}`;
  return (
    <g transform={`translate(${p.x},${p.y ?? 25})`}>
      <title>{p.cell.title}</title>
      <rect
        class={`graph-half ${look && on === null ? `graph-${look.kind}` : ""}`}
        width={p.width}
        height={18}
        rx={3}
        style={on === null ? undefined : { fill: colour(on) }}
      />
      <text
        class={`graph-value ${look ? "" : `graph-${p.side}`} ${look && on === null ? `graph-${look.kind}-text` : ""}`}
        x={6}
        y={13}
        style={on === null ? undefined : { fill: inkOn(on) }}
      >
        {shorten(text, Math.floor((p.width - 9) / 6.3))}
      </text>
    </g>
  );
}

/** The metric of each member of a run. */
function Bars({
  scene,
  metric,
  box,
  width,
  y,
}: {
  scene: Scene;
  metric: Metric;
  box: number;
  width: number;
  y: number;
}) {
  const members = membersOf(scene, box);
  const scale = scene.scale(metric);
  const step = (width - 16) / members.length;
  return (
    <g class="graph-bars" transform={`translate(8,${y})`}>
      {members.map((member, k) => {
        const look = lookOf(scale, scene.metrics.value(metric, member));
        const on = look.kind === "on" ? look.at : null;
        const tall = on === null ? BARS : 3 + (BARS - 3) * on;
        const wide = Math.max(0.8, step - (step > 3 ? 1 : 0));
        const fill = metric === "bad" && on !== null ? "bad" : look.kind;
        return (
          <rect
            key={member}
            class={on === null || metric === "bad" ? `graph-${fill}` : ""}
            x={k * step}
            y={BARS - tall}
            width={wide}
            height={tall}
            style={on === null || metric === "bad" ? undefined : { fill: colour(on) }}
          />
        );
      })}
    </g>
  );
}

/** Members of a run, through its parts; evenly chosen ones where they are too many for bars. */
function membersOf({ h }: Scene, box: number): number[] {
  const found: number[] = [];
  const stack = Array.from(h.groups[box]!.items).reverse();
  while (stack.length) {
    const item = stack.pop()!;
    if (item >= 0 && h.groups[item]!.kind === "part") stack.push(...Array.from(h.groups[item]!.items).reverse());
    else found.push(item);
  }
  const most = 76;
  return found.length <= most
    ? found
    : Array.from({ length: most }, (_, k) => found[Math.floor((k * found.length) / most)]!);
}

function Chips({ scene, box, width, y }: { scene: Scene; box: number; width: number; y: number }) {
  const chips = chipsOf(scene.h, box);
  const wide = (width - 16 - 4 * (chips.length - 1)) / Math.max(1, chips.length);
  return (
    <>
      {chips.map((p, k) => {
        const { name, requires_grad } = scene.h.model.doc.parameters[p]!;
        const node = scene.h.leaves[p]!;
        const value = node >= 0 ? norm(scene.call.came[node]) : requires_grad ? "✂" : "frozen";
        const short = name.slice(name.lastIndexOf(".") + 1);
        const room = Math.floor((wide - 10) / 5.9);
        return (
          <g
            key={p}
            class={`graph-chip ${node < 0 && requires_grad ? "graph-nograd" : ""}`}
            transform={`translate(${8 + k * (wide + 4)},${y})`}
          >
            <title>{`${name}: ${node >= 0 ? `gradient norm ${value}` : requires_grad ? "no gradient" : "frozen"}`}</title>
            <rect width={wide} height={17} rx={8.5} />
            <text x={wide / 2} y={12}>{`${shorten(short, Math.max(3, room - value.length - 1))} ${value}`}</text>
          </g>
        );
      })}
    </>
  );
}
