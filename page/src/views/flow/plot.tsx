import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { logPlace, positiveExtent, roomy, SIGNS, sortOf, type Extent } from "../../charts/scale";
import { useFrame, useWidth } from "../../charts/size";
import { logTicks, tickText } from "../../charts/ticks";
import { Pairs, Tooltip } from "../../charts/tooltip";
import { Brackets } from "./brackets";
import { zoomWindow, type Bracket, type Item } from "./items";
import { bandPath, dotPath, linePath, rowsOf, signPath, type PlotSeries, type State } from "./shapes";

interface Props {
  items: readonly Item[];
  brackets: readonly Bracket[][];
  series: readonly PlotSeries[];
  /** By item, what it is if it has no value. */
  states: readonly State[];
  /** What is right or wrong about an item, for the tooltip: names and values. */
  about: (item: number) => readonly (readonly [string, string])[];
  label: string;
  unit: string;
  guide: { value: number; text: string } | null;
  window: readonly [number, number];
  onWindow: (window: [number, number]) => void;
  picked: number;
  onPick: (item: number) => void;
  svg: RefObject<SVGSVGElement | null>;
}

export const LEFT = 86;
const [TOP, PLOT, ROW, RIGHT] = [10, 250, 18, 14];
/** Between the rows of signs and the plot, so that a tick's label does not touch a row's. */
const GAP = 9;

/** Items in forward order against their norms. Only those in sight are drawn. */
export function FlowPlot(props: Props) {
  const { items, series, states, window, onWindow, svg } = props;
  const [box, width] = useWidth<HTMLDivElement>();
  const scroller = useRef<HTMLDivElement>(null);
  const [at, hover] = useState(-1);
  const inner = Math.max(10, width - LEFT - RIGHT);
  const [first, last] = window;
  const slot = inner / Math.max(1e-9, last - first);
  const x = (i: number): number => LEFT + (i + 0.5 - first) * slot;
  const seen = { first: Math.max(0, Math.floor(first)), last: Math.min(items.length - 1, Math.ceil(last)) };

  const extent = useMemo<Extent>(() => {
    const found = positiveExtent(...series.flatMap((s) => [s.band.low, s.band.high]));
    const guide = props.guide?.value ?? 0;
    if (!found) return { low: 0.1, high: 10 };
    // The guide is shown where it is near; it does not squeeze the data.
    return roomy(guide > found.low / 100 && guide < found.high * 100 ? { low: Math.min(found.low, guide), high: Math.max(found.high, guide) } : found);
  }, [series, props.guide]);
  const rows = useMemo(() => rowsOf(series, states), [series, states]);
  const above = rows.above.length * ROW;
  const gap = above > 0 ? GAP : 0;
  const top = TOP + above + gap;
  const bottom = top + PLOT;
  const y = logPlace(extent, bottom, top);
  const below = bottom + GAP;
  const labelled = slot >= 13;
  const labels = useMemo(() => Math.min(74, 10 + 5.6 * items.reduce((n, i) => Math.max(n, Math.min(i.short.length, 12)), 0)), [items]);
  const axis = below + rows.below.length * ROW + 8;
  const height = axis + (labelled ? labels : 4) + props.brackets.length * 20 + 4;

  // The scroll bar and the window say the same; who moved last tells the other.
  const full = (inner * items.length) / Math.max(1e-9, last - first);
  useEffect(() => {
    const element = scroller.current;
    const want = first * slot;
    if (element && Math.abs(element.scrollLeft - want) > 1) element.scrollLeft = want;
  }, [first, slot, full]);
  const scrolled = useFrame((left: number) => {
    if (Math.abs(left - first * slot) > 1.5) onWindow([left / slot, left / slot + (last - first)]);
  });
  useEffect(() => {
    const element = box.current;
    // Not through JSX: only a listener that is not passive may keep the page from zooming too.
    const wheel = (e: WheelEvent): void => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      const centre = first + (e.clientX - element!.getBoundingClientRect().left - LEFT) / slot;
      onWindow(zoomWindow(first, last, centre, Math.exp(e.deltaY / 300), items.length));
    };
    element?.addEventListener("wheel", wheel, { passive: false });
    return () => element?.removeEventListener("wheel", wheel);
  });
  const keys = (e: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[e.key];
    if (step !== undefined) {
      const next = Math.min(Math.max((at < 0 ? Math.ceil(first) - Math.sign(step) : at) + step, 0), items.length - 1);
      hover(next);
      const size = last - first;
      if (next < first) onWindow([next, next + size]);
      else if (next + 1 > last) onWindow([next + 1 - size, next + 1]);
    } else if ((e.key === "Enter" || e.key === " ") && at >= 0) props.onPick(at);
    else if (e.key === "+" || e.key === "=") onWindow(zoomWindow(first, last, at < 0 ? (first + last) / 2 : at, 0.6, items.length));
    else if (e.key === "-") onWindow(zoomWindow(first, last, at < 0 ? (first + last) / 2 : at, 1.6, items.length));
    else if (e.key === "0") onWindow([0, items.length]);
    else if (e.key === "Escape") hover(-1);
    else return;
    e.preventDefault();
  };
  const point = useFrame((clientX: number) => {
    const left = clientX - box.current!.getBoundingClientRect().left;
    const i = Math.floor(first + (left - LEFT) / slot);
    hover(left < LEFT || i < 0 || i >= items.length ? -1 : i);
  });
  const shown = Math.max(0, width);
  const line = (i: number, kind: string) => i >= seen.first && i <= seen.last && <line class={kind} x1={x(i)} x2={x(i)} y1={TOP} y2={axis} stroke-width={Math.max(1, Math.min(slot, 18))} />;
  return (
    <div class="chart-box flow-plot" ref={box}>
      <svg
        ref={svg}
        class="chart-svg"
        width={shown}
        height={height}
        role="application"
        aria-label={`${props.label} Arrow keys move along, plus and minus zoom, Enter picks. The table below holds the same numbers.`}
        tabIndex={0}
        onKeyDown={keys}
        onPointerMove={(e) => point(e.clientX)}
        onPointerLeave={() => hover(-1)}
        onBlur={() => hover(-1)}
        onClick={() => at >= 0 && props.onPick(at)}
      >
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
          {props.unit}
        </text>
        {[...rows.above.map((r, k) => [r, TOP + (k + 0.5) * ROW] as const), ...rows.below.map((r, k) => [r, below + (k + 0.5) * ROW] as const)].map(([r, at]) => (
          <g key={r}>
            <rect class="flow-row" x={LEFT} width={inner} y={at - ROW / 2 + 1} height={ROW - 2} />
            <text x={LEFT - 8} y={at} text-anchor="end" dominant-baseline="middle" class={r === "NaN, Inf" ? "flow-bad" : ""}>
              {r}
            </text>
          </g>
        ))}
        <g clip-path="url(#flow-clip)">
          {props.picked >= 0 && line(props.picked, "flow-picked")}
          {at >= 0 && line(at, "flow-at")}
          {props.guide && props.guide.value > extent.low && props.guide.value < extent.high && (
            <g class="flow-guide">
              <line x1={LEFT} x2={LEFT + inner} y1={y(props.guide.value)} y2={y(props.guide.value)} />
              <text x={LEFT + inner - 4} y={y(props.guide.value) - 5} text-anchor="end">
                {tickText(props.guide.value)}, a usual size
              </text>
              <title>{props.guide.text}</title>
            </g>
          )}
          {series.map((s) => (
            <g key={s.name} style={{ color: s.colour }}>
              {s.wide && <path class="flow-band" d={bandPath(s.band, x, y, seen)} stroke-width={Math.min(Math.max(1, slot * 0.55), 14)} />}
              <path class="flow-line" d={linePath(s.band.middle, x, y, seen)} stroke-dasharray={s.dash} />
              <path class="flow-dots" d={dotPath(s.band.middle, x, y, seen)} stroke-width={slot >= 8 ? 6 : slot >= 3 ? 4 : 2.5} />
              <path class="flow-nan" d={signPath(s.band.high, "nan", x, TOP + above / 2, seen)} />
              <path class="flow-inf" d={signPath(s.band.high, "inf", x, TOP + above / 2, seen)} />
            </g>
          ))}
          {rows.below.map((r, k) => (
            <path key={r} class={`flow-state ${r === "zero" ? "flow-zero" : ""}`} d={rows.marks(r, x, below + (k + 0.5) * ROW, seen)} />
          ))}
          <Brackets rows={props.brackets} x={x} slot={slot} top={axis + (labelled ? labels : 4)} left={LEFT} right={LEFT + inner} />
        </g>
        <g clip-path="url(#flow-label-clip)">
          {labelled &&
            items.slice(seen.first, seen.last + 1).map((item, k) => (
              <text key={item.index} class={seen.first + k === props.picked ? "flow-label flow-label-picked" : "flow-label"} text-anchor="end" dominant-baseline="middle" transform={`translate(${x(seen.first + k)} ${axis + 4}) rotate(-60)`}>
                {item.short.length > 12 ? `${item.short.slice(0, 11)}…` : item.short}
              </text>
            ))}
        </g>
        <line class="axis" x1={LEFT} x2={LEFT + inner} y1={bottom + 0.5} y2={bottom + 0.5} />
      </svg>
      <div class="flow-scroll" ref={scroller} onScroll={(e) => scrolled(e.currentTarget.scrollLeft)} style={{ marginLeft: `${LEFT}px`, marginRight: `${RIGHT}px` }} hidden={last - first >= items.length - 0.01}>
        <div style={{ width: `${full}px`, height: "1px" }} />
      </div>
      {at >= 0 && items[at] && (
        <Tooltip x={x(at)} y={TOP} within={width}>
          <strong class="chart-mono">{items[at].name}</strong>
          <Pairs rows={props.about(at)} />
        </Tooltip>
      )}
    </div>
  );
}

/** The signs that are in use, for the legend. */
export function usedSigns(series: readonly PlotSeries[]): { sign: string; word: string }[] {
  const found = new Set<string>();
  for (const s of series) for (const v of s.band.high) found.add(sortOf(v));
  return (["nan", "inf", "zero"] as const).filter((k) => found.has(k)).map((k) => SIGNS[k]);
}
