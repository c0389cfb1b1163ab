import "uplot/dist/uPlot.min.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { savePng } from "../parts/save";
import { number } from "../parts/words";
import { opaque } from "./canvas";
import { type Palette, usePalette } from "./colour";
import type { Curve } from "./marks";
import { Button } from "./panel";
import { padded } from "./scale";
import { type Marker, signs } from "./signs";
import { useWidth } from "./size";
import { linearTicks, logTicks, tickText } from "./ticks";
import { Pairs, Tooltip } from "./tooltip";

export interface Series {
  name: string;
  curve: Curve;
  colour: (palette: Palette) => string;
  dash?: readonly number[];
  /** Least values of the steps that each point covers: a band is drawn from them to the curve. */
  low?: Curve;
}

interface Props {
  /** In words, for those who cannot see it. */
  label: string;
  /** Rising. */
  x: ArrayLike<number>;
  series: readonly Series[];
  log: boolean;
  height: number;
  /** Seen part of x; all of it where null. */
  range: readonly [number, number] | null;
  /** A stretch that was brushed; null for a double click. */
  onRange?: (range: [number, number] | null) => void;
  /** A click that was not a brush. */
  onStep?: (x: number) => void;
  markers?: readonly Marker[];
  /** Charts with the same name share their cursor. */
  sync?: string;
  text?: (value: number) => string;
  /** Where a linear axis of values ends although some are greater; these leave it at the top. */
  most?: number | null;
  /** Where a linear axis of values has its ticks. */
  ticks?: (low: number, high: number, count: number) => number[];
  /** What the axes are of. */
  xName?: string;
  yName?: string;
}

/** Space beside the axis: what stands below keeps it, so that steps stand one under the other. */
export const [LEFT, RIGHT] = [72, 18];

/** Curves over steps: drag to zoom, double click to see all. */
export function Lines(props: Props) {
  const { x, series, log, height, range, sync } = props;
  const [ref, width] = useWidth<HTMLDivElement>();
  const colours = usePalette();
  const latest = useRef(props);
  latest.current = props;
  const plot = useRef<uPlot | null>(null);
  const [at, hover] = useState<{ i: number; left: number } | null>(null);
  const data = useMemo(() => columns(x, series), [x, series]);

  useEffect(() => {
    if (!ref.current || width < 40) return;
    const made = new uPlot(options(latest, colours, width, hover), data, ref.current);
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [width > 40, series, log, height, colours, sync, x]);

  useEffect(() => {
    if (plot.current && plot.current.width !== width && width > 40) plot.current.setSize({ width, height });
  }, [width, height]);
  const [from, to] = range ?? [x[0] ?? 0, x[x.length - 1] ?? 1];
  useEffect(() => {
    const [min, max] = padded(from, to, width - LEFT - RIGHT);
    plot.current?.setScale("x", { min, max });
  }, [from, to, width, series, log, height, colours]);
  useEffect(() => plot.current?.redraw(false), [props.markers]);

  const text = props.text ?? number;
  return (
    <div
      class="chart-box chart-line"
      ref={ref}
      role="img"
      aria-label={props.label}
      // From the first frame on: what is below must not move when the curves are drawn.
      style={{ minHeight: `${height}px` }}
    >
      {at && at.i < x.length && (
        <Tooltip x={at.left} y={6}>
          <strong>
            {props.xName ?? "step"} {x[at.i]}
          </strong>
          <Pairs rows={series.map((s) => [s.name, said(s, at.i, text)] as const)} />
        </Tooltip>
      )}
    </div>
  );
}

/** Saves the picture of the chart inside the panel that the button is in. */
export function PngOf({
  name,
  within,
  text = "PNG",
  last = false,
}: {
  name: string;
  within: { current: HTMLElement | null };
  text?: string;
  /** The last picture of the panel, not the first. */
  last?: boolean;
}) {
  return (
    <Button
      label={`Save ${name} as PNG`}
      onClick={() => {
        const canvas = [...(within.current?.querySelectorAll("canvas") ?? [])].at(last ? -1 : 0);
        if (canvas) void savePng(`${name}.png`, opaque(canvas));
      }}
    >
      {text}
    </Button>
  );
}

function said(series: Series, i: number, text: (value: number) => string): string {
  const value = series.curve.values[i];
  const stretch = series.curve.stretches.find((s) => s.first <= i && i <= s.last);
  if (stretch) return { nan: "NaN", inf: "Inf", zero: "0" }[stretch.sort];
  if (value === null || value === undefined) return "–";
  const low = series.low?.values[i];
  return low !== null && low !== undefined && low !== value ? `${text(low)} to ${text(value)}` : text(value);
}

function columns(x: ArrayLike<number>, series: readonly Series[]): uPlot.AlignedData {
  const out: (number | null)[][] = [];
  for (const s of series) {
    out.push(s.curve.values);
    if (s.low) out.push(s.low.values);
  }
  return [Array.from(x), ...out] as uPlot.AlignedData;
}

/** Height of an axis' title. */
const TITLE = 18;

function title(label: string): { label: string; labelSize: number; labelGap: number } {
  return { label, labelSize: TITLE, labelGap: 2 };
}

type Hover = (at: { i: number; left: number } | null) => void;

function options(latest: { current: Props }, colours: Palette, width: number, hover: Hover): uPlot.Options {
  const { log, height, series, sync } = latest.current;
  const lines: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  for (const s of series) {
    const stroke = s.colour(colours);
    lines.push({
      label: s.name,
      stroke,
      width: 1.5,
      dash: [...(s.dash ?? [])],
      points: { show: true, size: 4, fill: stroke, filter: (u, i) => alone(u.data[i]!) },
      spanGaps: false,
    });
    if (s.low) {
      lines.push({ label: `${s.name}, least`, stroke, width: 0.5, points: { show: false } });
      bands.push({ series: [lines.length - 2, lines.length - 1], fill: translucent(stroke) });
    }
  }
  const font = `11px ${colours.font}`;
  const axis = {
    stroke: colours.quiet,
    font,
    labelFont: font,
    grid: { stroke: colours.line, width: 0.6 },
    ticks: { show: false },
    filter: (_: uPlot, splits: number[]) => splits,
  };
  // uPlot leaves out labels of a logarithmic axis on its own terms; our ticks are chosen to be labelled.
  return {
    width,
    height,
    padding: [14, RIGHT, 0, 0],
    legend: { show: false },
    series: lines,
    bands,
    cursor: {
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: {
        dblclick: () => () => {
          latest.current.onRange?.(null);
          return null;
        },
      },
      ...(sync ? { sync: { key: sync, setSeries: false } } : {}),
    },
    scales: {
      x: { time: false },
      y: log
        ? { distr: 3, range: (_, low, high) => logRange(low, high) }
        : { range: (_, low, high) => plainRange(low, capped(low, high, latest.current.most)) },
    },
    axes: [
      {
        ...axis,
        size: 28,
        ...title(latest.current.xName ?? "step"),
        gap: 8,
        splits: (_u, _i, low, high) => linearTicks(low, high, Math.max(2, width / 110)).filter(Number.isInteger),
        values: (_, ticks) => ticks.map((t) => t.toLocaleString("en-US")),
      },
      {
        ...axis,
        size: LEFT - TITLE,
        ...title(latest.current.yName ?? " "),
        gap: 6,
        splits: (_u, _i, low, high) => (log ? logTicks : (latest.current.ticks ?? linearTicks))(low, high, height / 34),
        values: (_, ticks) => ticks.map((t) => (latest.current.text && !log ? latest.current.text(t) : tickText(t))),
      },
    ],
    hooks: {
      setSelect: [
        (u) => {
          if (u.select.width < 3) return;
          const low = u.posToVal(u.select.left, "x");
          const high = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          latest.current.onRange?.([low, high]);
        },
      ],
      // The pointer is on one chart; those that follow it show their cursor alone.
      setCursor: [
        (u) =>
          hover(
            u.over.matches(":hover") && typeof u.cursor.idx === "number" && (u.cursor.left ?? -1) >= 0
              ? { i: u.cursor.idx, left: u.bbox.left / uPlot.pxRatio + u.cursor.left! }
              : null,
          ),
      ],
      draw: [(u) => signs(u, latest.current, colours)],
      ready: [(u) => click(u, latest)],
    },
  };
}

function capped(low: number, high: number, most: number | null | undefined): number {
  return most != null && low < most ? Math.min(high, most) : high;
}

/** Values between two gaps: a line alone would not show them. */
function alone(values: uPlot.AlignedData[number]): number[] {
  const found: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (typeof values[i] === "number" && typeof values[i - 1] !== "number" && typeof values[i + 1] !== "number")
      found.push(i);
  }
  return found;
}

/** A click goes to a marker under it, else to the step. A drag is a brush and no click. */
function click(u: uPlot, latest: { current: Props }): void {
  let down = 0;
  u.over.addEventListener("mousedown", (e) => (down = e.clientX));
  u.over.addEventListener("click", (e) => {
    if (Math.abs(e.clientX - down) > 3) return;
    const left = e.clientX - u.rect.left;
    const marker = latest.current.markers?.find((m) => Math.abs(u.valToPos(m.x, "x") - left) < 6);
    const i = u.posToIdx(left);
    if (marker) marker.onPick();
    else if (latest.current.x[i] !== undefined) latest.current.onStep?.(latest.current.x[i]);
  });
}

function translucent(colour: string): string {
  return `color-mix(in srgb, ${colour} 22%, transparent)`;
}

function logRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !(low > 0)) return [0.1, 10];
  const pad = Math.max(0.03, (0.4 - Math.log10(high / low)) / 2, Math.log10(high / low) * 0.05);
  return [low * 10 ** -pad, high * 10 ** pad];
}

function plainRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}
