import { Component } from "preact";
import { norm } from "../../parts/words";
import { type Flow, OUTSIDE } from "./between";
import { nameOf } from "./names";
import { look } from "./scale";
import type { Scene } from "./scene";

interface WireProps {
  scene: Scene;
  group: number;
  flow: Flow;
  path: string;
  middle: { x: number; y: number };
  marked: boolean;
  faded: boolean;
}

/** Values from one box to the next, as wide as the gradient that came back along it is large. */
export class WireView extends Component<WireProps> {
  override shouldComponentUpdate(next: WireProps): boolean {
    const old = this.props;
    return next.path !== old.path || next.marked !== old.marked || next.faded !== old.faded || next.flow !== old.flow;
  }

  override render({ scene, group, flow, path, middle, marked, faded }: WireProps) {
    const seen = look(scene.scale("gradient"), flow.norm);
    const width = seen.kind === "on" ? 1 + 4 * seen.at : 1.2;
    const type = `graph-wire graph-wire-${flow.cut ? "cut" : seen.kind} ${marked ? "graph-marked" : ""} ${faded ? "graph-faded" : ""}`;
    const end = (slot: number): string => {
      return slot === OUTSIDE ? "outside" : nameOf(scene.h, scene.h.groups[group]!.items[slot]!).title;
    };
    const edges = flow.count > 1 ? `, ${flow.count} edges` : "";
    const title = flow.cut
      ? `cut: no gradient goes from ${end(flow.from)} to ${end(flow.to)}`
      : `gradient from ${end(flow.from)} to ${end(flow.to)}: ${flow.norm < 0 ? "not measured" : `norm ${norm(flow.norm)}`}${edges}`;
    return (
      <g class={type}>
        <title>{title}</title>
        <path class="graph-touch" d={path} />
        <path
          class="graph-line"
          d={path}
          style={{ strokeWidth: marked ? width + 1 : width }}
          marker-end={flow.from === OUTSIDE ? undefined : "url(#graph-head)"}
        />
        {flow.cut && (
          <text class="graph-scissors" x={middle.x + 5} y={middle.y + 6}>
            ✂
          </text>
        )}
      </g>
    );
  }
}

/** Patterns for what has no place on a scale, and the head of an edge. */
export function Patterns() {
  return (
    <defs>
      <pattern id="graph-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="graph-pattern-plain" width="6" height="6" />
        <line class="graph-pattern-quiet" x1="0" y1="0" x2="0" y2="6" />
      </pattern>
      <pattern id="graph-cross" width="7" height="7" patternUnits="userSpaceOnUse">
        <rect class="graph-pattern-badback" width="7" height="7" />
        <path class="graph-pattern-bad" d="M1,1 l5,5 M6,1 l-5,5" />
      </pattern>
      <pattern id="graph-dots" width="6" height="6" patternUnits="userSpaceOnUse">
        <rect class="graph-pattern-plain" width="6" height="6" />
        <circle class="graph-pattern-dot" cx="3" cy="3" r="1" />
      </pattern>
      <marker
        id="graph-head"
        viewBox="0 0 8 8"
        refX="7"
        refY="4"
        markerWidth="8"
        markerHeight="8"
        markerUnits="userSpaceOnUse"
        orient="auto"
      >
        <path class="graph-arrow" d="M0,0.5 L8,4 L0,7.5 z" />
      </marker>
    </defs>
  );
}
