import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useFrame, useWidth } from "../../charts/size";
import { Pairs, Tooltip } from "../../charts/tooltip";
import { useZoom, zoomed } from "../../charts/zoom";
import { type Bracket, CLOSEST, type Item } from "./items";
import { Layers, LEFT, layoutOf, RIGHT, TOP } from "./layers";
import type { PlotSeries, State } from "./shapes";

export interface PlotProps {
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

/** Items in forward order against their norms. Only those in sight are drawn. */
export function FlowPlot(props: PlotProps) {
  const { items, series, states, window, onWindow, svg } = props;
  const [box, width] = useWidth<HTMLDivElement>();
  const scroller = useRef<HTMLDivElement>(null);
  const [at, hover] = useState(-1);
  const [first, last] = window;
  const layout = useMemo(
    () => layoutOf(props, width),
    [items, series, states, props.brackets, props.guide, first, last, width],
  );
  const { inner, slot, x, axis, height } = layout;
  // Made anew when something in it changes, and not with every move of the pointer.
  const layers = useMemo(() => <Layers {...props} layout={layout} />, [layout, props.picked, props.unit]);

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
  const total = items.length;
  useZoom(box, { range: window, total, least: CLOSEST, left: LEFT, width: inner, drag: false, onRange: onWindow });
  const zoom = (factor: number): void =>
    onWindow(zoomed(window, factor, at < 0 ? (first + last) / 2 : at + 0.5, total, CLOSEST));
  const keys = (e: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[e.key];
    if (step !== undefined) {
      const next = Math.min(Math.max((at < 0 ? Math.ceil(first) - Math.sign(step) : at) + step, 0), items.length - 1);
      hover(next);
      const size = last - first;
      if (next < first) onWindow([next, next + size]);
      else if (next + 1 > last) onWindow([next + 1 - size, next + 1]);
    } else if ((e.key === "Enter" || e.key === " ") && at >= 0) props.onPick(at);
    else if (e.key === "+" || e.key === "=") zoom(0.6);
    else if (e.key === "-") zoom(1.6);
    else if (e.key === "0") onWindow([0, items.length]);
    else if (e.key === "Escape") hover(-1);
    else return;
    e.preventDefault();
  };
  const itemAt = (clientX: number): number => {
    const left = clientX - box.current!.getBoundingClientRect().left;
    const i = Math.floor(first + (left - LEFT) / slot);
    return left < LEFT || i < 0 || i >= items.length ? -1 : i;
  };
  const point = useFrame((clientX: number) => hover(itemAt(clientX)));
  return (
    <div class="chart-box flow-plot" ref={box}>
      <svg
        ref={svg}
        class="chart-svg"
        width={Math.max(0, width)}
        height={height}
        role="application"
        aria-label={`${props.label} Arrow keys move along, plus and minus zoom, Enter picks. The table below holds the same numbers.`}
        tabIndex={0}
        onKeyDown={keys}
        onPointerMove={(e) => point(e.clientX)}
        onPointerLeave={() => hover(-1)}
        onBlur={() => hover(-1)}
        onClick={(e) => {
          // A finger presses where nothing hovered before.
          const i = itemAt(e.clientX);
          hover(i);
          if (i >= 0) props.onPick(i);
        }}
      >
        {at >= 0 && at + 0.5 > first && at + 0.5 < last && (
          <line
            class="flow-at"
            x1={x(at)}
            x2={x(at)}
            y1={TOP}
            y2={axis}
            stroke-width={Math.max(1, Math.min(slot, 18))}
          />
        )}
        {layers}
      </svg>
      <div
        class="flow-scroll"
        ref={scroller}
        onScroll={(e) => scrolled(e.currentTarget.scrollLeft)}
        style={{ marginLeft: `${LEFT}px`, marginRight: `${RIGHT}px` }}
        hidden={last - first >= items.length - 0.01}
      >
        <div style={{ width: `${full}px`, height: "1px" }} />
      </div>
      {at >= 0 && items[at] && (
        <Tooltip x={x(at)} y={TOP}>
          <strong class="chart-mono">{items[at].name}</strong>
          <Pairs rows={props.about(at)} />
        </Tooltip>
      )}
    </div>
  );
}
