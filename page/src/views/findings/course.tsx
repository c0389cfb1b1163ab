import "../../charts/charts.css";
import { useMemo } from "preact/hooks";
import { Lines, type Series } from "../../charts/line";
import { normCurve, type Curve as Points, plainCurve } from "../../charts/marks";
import type { Marker } from "../../charts/signs";
import type { Model } from "../../data/model";
import { gradientSaid, lossSaid } from "../../data/said";
import { number } from "../../parts/words";
import type { ViewProps } from "../view";

interface Curve {
  title: string;
  /** How the values came about, in words; "". */
  said: string;
  log: boolean;
  series: readonly Series[];
}

/** The run in one look: loss and gradient norm over all steps, with a flag at the step of each finding. */
export function Course({ model, set, step }: Pick<ViewProps, "model" | "set" | "step">) {
  const { doc } = model;
  const { index } = doc.steps;
  const curves = useMemo(() => curvesOf(model), [model]);
  const markers = useMemo(
    (): Marker[] => [
      ...doc.findings.flatMap((finding, i): Marker[] =>
        finding.step === null
          ? []
          : [
              {
                x: finding.step,
                name: finding.title,
                severity: finding.severity,
                onPick: () => set({ finding: String(i), step: String(finding.step), call: "" }),
              },
            ],
      ),
      ...(doc.findings.some((finding) => finding.step === step)
        ? []
        : [{ x: step, name: "the selected step", severity: "info" as const, sign: "▲", onPick: () => undefined }]),
    ],
    [doc, set, step],
  );
  if (index.length < 2 || curves.length === 0) return null;
  return (
    <section class="findings-course" aria-label="The run over its steps">
      {curves.map(({ title, said, log, series }) => (
        <figure key={title}>
          <figcaption>
            <span>
              {title} {said && <span class="quiet">{said}</span>}
            </span>
            <span class="findings-ends quiet">
              {ends(series[0]!.curve).map(([i, value]) => (
                <span key={i}>
                  step {index[i]}: {value}
                </span>
              ))}
            </span>
          </figcaption>
          <Lines
            label={`${title} over ${index.length} steps, from ${ends(series[0]!.curve)
              .map(([, value]) => value)
              .join(" to ")}.`}
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
export function curvesOf({ doc }: Pick<Model, "doc">): Curve[] {
  const { steps } = doc;
  const made: Curve[] = [
    {
      title: "Loss",
      said: lossSaid(steps),
      log: false,
      series: [{ name: "loss", curve: plainCurve(steps.loss, (i) => steps.known[i] === 1), colour: (p) => p.ink }],
    },
    {
      title: "Gradient norm",
      said: gradientSaid(steps),
      log: true,
      series: [{ name: "gradient norm", curve: normCurve(steps.gradient), colour: (p) => p.backward }],
    },
  ];
  return made.filter(({ series }) =>
    series.some(({ curve }) => curve.stretches.length > 0 || curve.values.some((v) => v !== null)),
  );
}
