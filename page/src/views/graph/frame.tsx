import { Component } from "preact";
import { shorten } from "../../parts/names";
import { Half } from "./box";
import { cells, signs } from "./cells";
import { HEADER, type Spot } from "./layout";
import type { Metric } from "./metrics";
import { fullName, nameOf } from "./names";
import type { Scene } from "./scene";

export interface FrameProps {
  scene: Scene;
  metric: Metric;
  spot: Spot & { left: number; top: number };
  chosen: boolean;
  faded: boolean;
}

/** An open group: a box around others. */
export class Frame extends Component<FrameProps> {
  override shouldComponentUpdate(next: FrameProps): boolean {
    const { spot, ...rest } = next;
    const old = this.props;
    const moved = spot.left !== old.spot.left || spot.top !== old.spot.top || spot.inner !== old.spot.inner;
    return moved || (Object.keys(rest) as (keyof typeof rest)[]).some((key) => rest[key] !== old[key]);
  }

  override render({ scene, metric, spot, chosen, faded }: FrameProps) {
    const { h, metrics } = scene;
    const { box, left, top, width, height } = spot;
    const group = h.groups[box]!;
    const { title, kind } = nameOf(h, box);
    const { forward, backward } = cells(metrics, scene.scale(metric), box);
    const nodes = (group.end - group.start).toLocaleString("en-US");
    const room = Math.floor((width - 30 - 108) / 7.1);
    const name = shorten(title, Math.max(8, room));
    const about = [kind, `${nodes} nodes`].filter(Boolean).join(" · ");
    const [badge] = signs(metrics, box, metric);
    const left2 = width > 420 ? Math.floor((width - 250) / 7.1) - name.length : 0;
    return (
      <g
        class={`graph-frame graph-${group.kind} ${chosen ? "graph-chosen" : ""} ${faded ? "graph-faded" : ""}`}
        data-box={box}
        transform={`translate(${left},${top})`}
      >
        <rect class="graph-back" width={width} height={height} rx={6} />
        <rect class="graph-head" width={width} height={HEADER - 4} rx={6} />
        <title>{`${fullName(h, box)}\n${nodes} nodes`}</title>
        <g data-twisty="1" class="graph-twisty">
          <rect width={26} height={HEADER - 4} rx={6} />
          <path d="M8,10 h9 l-4.5,6 z" />
        </g>
        <text class="graph-title" x={26} y={17}>
          {name}
        </text>
        {left2 > 8 && (
          <text class="graph-kind graph-kindleft" x={26 + 7.6 * (name.length + 1)} y={17}>
            {shorten(about, left2)}
          </text>
        )}
        {metric === "bytes" ? (
          <Half cell={forward} x={width - 110} y={4} width={106} sign="↓" side="forward" />
        ) : (
          <Half cell={backward} x={width - 110} y={4} width={106} sign="↑" side="backward" />
        )}
        {badge && (
          <g
            class={badge.bad ? "graph-badge" : "graph-badge graph-badge-mild"}
            transform={`translate(${width - 84},-12)`}
          >
            <title>{badge.title}</title>
            <rect width={80} height={16} rx={8} />
            <text x={40} y={11.5}>
              {badge.text}
            </text>
          </g>
        )}
      </g>
    );
  }
}
