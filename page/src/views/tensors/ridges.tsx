import type { RefObject } from "preact";
import { useMemo } from "preact/hooks";
import { useWidth } from "../../charts/size";
import { tickText } from "../../charts/ticks";
import { number } from "../../parts/words";
import { bars, type Captured, described, LINEAR, symlogAxis, threshold } from "./groups";

const [LEFT, RIGHT, TOP, AXIS] = [76, 14, 12, 44];
/** Ridges that are drawn; with more steps, some between the first and the last. */
const MOST = 24;

interface Props {
  tensors: readonly Captured[];
  name: string;
  step: number;
  linear: boolean;
  onStep: (step: number) => void;
  svg: RefObject<SVGSVGElement | null>;
}

/** Histograms step under step, on one axis. */
export function Ridges({ tensors, name, step, linear, onStep, svg }: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const shown = useMemo(() => thinned(tensors, MOST, step), [tensors, step]);
  const made = useMemo(() => {
    const axis = linear ? LINEAR : symlogAxis(threshold(tensors));
    const all = shown.map((t) => bars(t, axis));
    let [low, high, top] = [Infinity, -Infinity, 0];
    for (const { edges, heights } of all) {
      low = Math.min(low, edges[0] ?? Infinity);
      high = Math.max(high, edges[edges.length - 1] ?? -Infinity);
      for (const h of heights) top = Math.max(top, h);
    }
    return { axis, all, low, high, top };
  }, [tensors, shown, linear]);
  const lane = shown.length > 10 ? 22 : shown.length > 1 ? 34 : 150;
  const tall = shown.length > 1 ? lane * 1.9 : lane;
  const inner = Math.max(10, width - LEFT - RIGHT);
  const height = TOP + (shown.length - 1) * lane + tall + AXIS;
  const x = (place: number): number => LEFT + ((place - made.low) / Math.max(1e-9, made.high - made.low)) * inner;
  const real = made.axis.value;
  const base = (k: number): number => TOP + tall + k * lane;
  const ticks =
    made.high > made.low
      ? made.axis.ticks(real(made.low), real(made.high), ((made.high - made.low) * (linear ? 90 : 44)) / inner)
      : [];
  return (
    <div class="chart-box" ref={box}>
      <svg
        ref={svg}
        class="chart-svg tensors-ridges"
        width={width}
        height={height}
        role="group"
        aria-label={`Histograms of ${name} in ${shown.length} of ${tensors.length} steps, from ${number(real(made.low))} to ${number(real(made.high))} on a ${linear ? "linear" : "symmetric logarithmic"} axis.`}
      >
        {ticks.map((t) => (
          <g key={t}>
            <line class="grid" x1={x(made.axis.place(t))} x2={x(made.axis.place(t))} y1={TOP} y2={height - AXIS} />
            <text x={x(made.axis.place(t))} y={height - AXIS + 15} text-anchor="middle">
              {tickText(t)}
            </text>
          </g>
        ))}
        <text x={LEFT + inner / 2} y={height - 8} text-anchor="middle">
          value{linear ? "" : ", symmetric logarithmic"}
        </text>
        {shown.map((t, k) => {
          const { edges, heights } = made.all[k]!;
          let path = `M${x(edges[0] ?? 0)} ${base(k)}`;
          heights.forEach(
            (h, i) =>
              (path += `V${(base(k) - (made.top > 0 ? (h / made.top) * tall : 0)).toFixed(1)}H${x(edges[i + 1]!).toFixed(1)}`),
          );
          const chosen = t.step === step;
          return (
            <g
              key={t.step}
              class={chosen ? "tensors-ridge tensors-chosen" : "tensors-ridge"}
              role="button"
              tabIndex={0}
              aria-pressed={chosen}
              aria-label={`Step ${t.step}: mean ${number(t.mean)}, standard deviation ${number(t.std)}, ${described(t)}`}
              onClick={() => onStep(t.step)}
              onKeyDown={(e) => {
                if (e.key !== "Enter" && e.key !== " ") return;
                e.preventDefault();
                onStep(t.step);
              }}
            >
              <path d={`${path}V${base(k)}Z`} />
              <text x={LEFT - 8} y={base(k) - 4} text-anchor="end">
                step {t.step}
              </text>
              {t.nan + t.inf > 0 && (
                <text class="tensors-bad" x={LEFT + inner} y={base(k) - 4} text-anchor="end">
                  ✕ {described(t).split(", ").slice(1).join(", ")}
                </text>
              )}
              <title>{`step ${t.step}: ${described(t)}`}</title>
            </g>
          );
        })}
      </svg>
      {shown.length < tensors.length && (
        <p class="chart-note quiet">{`${shown.length} of ${tensors.length} steps are drawn; the table has all.`}</p>
      )}
    </div>
  );
}

/** The first, the last, the chosen one and some between, in order. */
function thinned(tensors: readonly Captured[], most: number, step: number): readonly Captured[] {
  if (tensors.length <= most) return tensors;
  const kept = new Set(Array.from({ length: most - 1 }, (_, k) => Math.round((k * (tensors.length - 1)) / (most - 2))));
  return tensors.filter((t, i) => kept.has(i) || t.step === step);
}
