import { type Extent, logPlace, positiveExtent, roomy } from "../../charts/scale";
import { logTicks, tickText } from "../../charts/ticks";
import { shorten } from "../../parts/names";
import { Brackets } from "./brackets";
import type { PlotProps } from "./plot";
import { bandPath, dotPath, linePath, type Rows, rowsOf, signPath } from "./shapes";

export const [LEFT, RIGHT, TOP] = [86, 14, 10];
const [PLOT, ROW] = [250, 18];
/** Between the rows of signs and the plot, so that a tick's label does not touch a row's. */
const GAP = 9;

/** Where everything stands, in pixels. */
export interface Layout {
  inner: number;
  /** Width of an item. */
  slot: number;
  x: (item: number) => number;
  y: (norm: number) => number;
  /** Items in sight, both in. */
  seen: { first: number; last: number };
  extent: Extent;
  rows: Rows;
  /** Middle of the row of signs above, top and bottom of the plot, top of the rows below and of the labels. */
  above: number;
  top: number;
  bottom: number;
  below: number;
  axis: number;
  /** Room for the names of items; 4 where there is none. */
  labels: number;
  height: number;
}

export function layoutOf(
  { items, series, states, window: [first, last], guide, brackets }: PlotProps,
  width: number,
): Layout {
  const inner = Math.max(10, width - LEFT - RIGHT);
  const slot = inner / Math.max(1e-9, last - first);
  const extent = extentOf(series, guide?.value ?? 0);
  const rows = rowsOf(series, states);
  const above = rows.above.length * ROW;
  const top = TOP + above + (above > 0 ? GAP : 0);
  const bottom = top + PLOT;
  const below = bottom + GAP;
  const axis = below + rows.below.length * ROW + 8;
  const longest = items.reduce((n, i) => Math.max(n, Math.min(i.short.length, 12)), 0);
  const labels = slot >= 13 ? Math.min(74, 10 + 5.6 * longest) : 4;
  return {
    inner,
    slot,
    x: (i) => LEFT + (i + 0.5 - first) * slot,
    y: logPlace(extent, bottom, top),
    seen: { first: Math.max(0, Math.floor(first)), last: Math.min(items.length - 1, Math.ceil(last)) },
    extent,
    rows,
    above: TOP + above / 2,
    top,
    bottom,
    below,
    axis,
    labels,
    height: axis + labels + brackets.length * 20 + 4,
  };
}

/** The guide is shown where it is near; it does not squeeze the data. */
function extentOf(series: PlotProps["series"], guide: number): Extent {
  const found = positiveExtent(...series.flatMap((s) => [s.band.low, s.band.high]));
  if (!found) return { low: 0.1, high: 10 };
  const near = guide > found.low / 100 && guide < found.high * 100;
  return roomy(near ? { low: Math.min(found.low, guide), high: Math.max(found.high, guide) } : found);
}

/** All of the picture but what follows the pointer. */
export function Layers({ items, series, brackets, guide, unit, picked, layout }: PlotProps & { layout: Layout }) {
  const { inner, slot, x, y, seen, extent, rows, above, top, bottom, below, axis, labels, height } = layout;
  const lanes = [
    ...rows.above.map((r, k) => [r, TOP + (k + 0.5) * ROW] as const),
    ...rows.below.map((r, k) => [r, below + (k + 0.5) * ROW] as const),
  ];
  return (
    <>
      <defs>
        <clipPath id="flow-clip">
          <rect x={LEFT} y="0" width={inner} height={height} />
        </clipPath>
        <clipPath id="flow-label-clip">
          <rect x={LEFT - 40} y="0" width={inner + 40} height={height} />
        </clipPath>
      </defs>
      {logTicks(extent.low, extent.high, 8).map((t) => (
        <g key={t}>
          <line class="grid" x1={LEFT} x2={LEFT + inner} y1={Math.round(y(t)) + 0.5} y2={Math.round(y(t)) + 0.5} />
          <text x={LEFT - 8} y={y(t)} text-anchor="end" dominant-baseline="middle">
            {tickText(t)}
          </text>
        </g>
      ))}
      <text x={12} y={(top + bottom) / 2} transform={`rotate(-90 12 ${(top + bottom) / 2})`} text-anchor="middle">
        {unit}
      </text>
      {lanes.map(([r, at]) => (
        <g key={r}>
          <rect class="flow-row" x={LEFT} width={inner} y={at - ROW / 2 + 1} height={ROW - 2} />
          <text
            x={LEFT - 8}
            y={at}
            text-anchor="end"
            dominant-baseline="middle"
            class={r === "NaN, Inf" ? "flow-bad" : ""}
          >
            {r}
          </text>
        </g>
      ))}
      <g clip-path="url(#flow-clip)">
        {picked >= seen.first && picked <= seen.last && (
          <line
            class="flow-picked"
            x1={x(picked)}
            x2={x(picked)}
            y1={TOP}
            y2={axis}
            stroke-width={Math.max(2, Math.min(slot, 18))}
          />
        )}
        {guide && guide.value > extent.low && guide.value < extent.high && (
          <g class="flow-guide">
            <line x1={LEFT} x2={LEFT + inner} y1={y(guide.value)} y2={y(guide.value)} />
            <text x={LEFT + inner - 4} y={y(guide.value) - 5} text-anchor="end">
              {tickText(guide.value)}, a usual size
            </text>
            <title>{guide.text}</title>
          </g>
        )}
        {series.map((s) => (
          <g key={s.name} style={{ color: s.colour }}>
            {s.wide && (
              <path
                class="flow-band"
                d={bandPath(s.band, x, y, seen)}
                stroke-width={Math.min(Math.max(1, slot * 0.55), 14)}
              />
            )}
            <path class="flow-line" d={linePath(s.band.middle, x, y, seen)} stroke-dasharray={s.dash} />
            <path
              class="flow-dots"
              stroke-linecap="round"
              d={dotPath(s.band.middle, x, y, seen)}
              stroke-width={slot >= 8 ? 6 : slot >= 3 ? 4 : 2.5}
            />
            <path class="flow-nan" d={signPath(s.band.high, "nan", x, above, seen)} />
            <path class="flow-inf" d={signPath(s.band.high, "inf", x, above, seen)} />
          </g>
        ))}
        {rows.below.map((r, k) => (
          <path
            key={r}
            class={`flow-state ${r === "zero" ? "flow-zero" : ""}`}
            d={rows.marks(r, x, below + (k + 0.5) * ROW, seen)}
          />
        ))}
        <Brackets rows={brackets} x={x} slot={slot} top={axis + labels} left={LEFT} right={LEFT + inner} />
      </g>
      {labels > 4 && (
        <g clip-path="url(#flow-label-clip)">
          {items.slice(seen.first, seen.last + 1).map((item, k) => {
            const at = x(seen.first + k);
            if (at < LEFT || at > LEFT + inner) return null;
            return (
              <text
                key={item.index}
                class={seen.first + k === picked ? "flow-label flow-label-picked" : "flow-label"}
                text-anchor="end"
                dominant-baseline="middle"
                transform={`translate(${at} ${axis + 4}) rotate(-60)`}
              >
                {shorten(item.short, 13)}
              </text>
            );
          })}
        </g>
      )}
      <line class="axis" x1={LEFT} x2={LEFT + inner} y1={bottom + 0.5} y2={bottom + 0.5} />
    </>
  );
}
