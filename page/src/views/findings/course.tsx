import "../../charts/charts.css";
import { useMemo } from "preact/hooks";
import { Lines, type Series } from "../../charts/line";
import type { Curve as Points } from "../../charts/marks";
import type { Marker } from "../../charts/signs";
import type { Model } from "../../data/model";
import { gradientSaid, lossSaid } from "../../data/said";
import { number } from "../../parts/words";
import { gradientSeries, isKnown, lossSeries } from "../steps/curves";
import { flags, selectedMarker } from "../steps/markers";
import type { ViewProps } from "../view";

interface Curve {
  title: string;
  /** How the values came about, in words; "". */
  said: string;
  log: boolean;
  /** One curve: the same array for all renderings. */
  series: readonly Series[];
  ends: [number, string][];
}

/** The run in one look: loss and gradient norm over all steps, with a flag at the step of each finding. */
export function Course({ model, set, step }: Pick<ViewProps, "model" | "set" | "step">) {
  const { doc } = model;
  const { index } = doc.steps;
  const curves = useMemo(() => curvesOf(model), [model]);
  const markers = useMemo((): Marker[] => {
    const found = flags(doc, (finding, n) => set({ finding: String(finding), step: String(n), call: "" }));
    return found.some(({ x }) => x === step) ? found : [...found, selectedMarker(step)];
  }, [doc, set, step]);
  if (index.length < 2 || curves.length === 0) return null;
  return (
    <section class="findings-course" aria-label="The run over its steps">
      {curves.map(({ title, said, log, series, ends: known }) => (
        <figure key={title}>
          <figcaption>
            <span>
              {title} {said && <span class="quiet">{said}</span>}
            </span>
            <span class="findings-ends quiet">
              {known.map(([i, value]) => (
                <span key={i}>
                  step {index[i]}: {value}
                </span>
              ))}
            </span>
          </figcaption>
          <Lines
            label={`${title} over ${index.length} steps, from ${known.map(([, value]) => value).join(" to ")}.`}
            x={index}
            series={series}
            log={log}
            height={104}
            range={null}
            onStep={(n) => set({ step: String(n), call: "" })}
            markers={markers}
            sync="course"
          />
        </figure>
      ))}
    </section>
  );
}

/** The first and the last place of a curve that something is known of, and what, in words. */
export function ends({ values, stretches }: Points): [number, string][] {
  const known = values.flatMap((value, i): [number, string][] => (value === null ? [] : [[i, number(value)]]));
  for (const { sort, first, last } of stretches) {
    const word = { nan: "NaN", inf: "Inf", zero: "0" }[sort];
    known.push([first, word], [last, word]);
  }
  known.sort(([a], [b]) => a - b);
  return known.length === 0 ? [] : known[0]![0] === known.at(-1)![0] ? [known[0]!] : [known[0]!, known.at(-1)!];
}

/** The curves that have a value. */
export function curvesOf({ doc: { steps } }: Pick<Model, "doc">): Curve[] {
  const made = [
    { title: "Loss", said: lossSaid(steps), log: false, series: [lossSeries(steps)] },
    { title: "Gradient norm", said: gradientSaid(steps), log: true, series: [gradientSeries(steps)] },
  ];
  return made.filter(({ series }) => series.some(isKnown)).map((one) => ({ ...one, ends: ends(one.series[0]!.curve) }));
}
