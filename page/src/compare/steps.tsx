import { useMemo, useRef } from "preact/hooks";
import { usePalette } from "../charts/colour";
import { Lines, PngOf, type Series } from "../charts/line";
import { plainCurve } from "../charts/marks";
import { Legend, Panel } from "../charts/panel";
import { number } from "../parts/words";
import { Bars, Key } from "./bars";
import { chosen, StepChoice, stepOf } from "./flow";
import type { StepOf, Summary } from "./pair";
import { apart } from "./state";
import type { Props } from "./view";

export function Steps(props: Props) {
  const { pair, at, set } = props;
  const steps = useMemo(() => pair.steps(), [pair]);
  const step = stepOf(pair, at);
  const lines = useMemo(() => pair.parameters(step), [pair, step]);
  return (
    <>
      <Losses {...props} />
      <Panel
        title="Recorded steps"
        note="Losses of both, and how far gradients and weights are apart: the farthest of all."
      >
        <div class="compare-wide">
          <table class="compare-table compare-steps">
            <thead>
              <tr>
                <th scope="col">step</th>
                <th scope="col" class="number">
                  loss of A
                </th>
                <th scope="col" class="number">
                  loss of B
                </th>
                <th scope="col" class="number">
                  apart
                </th>
                <th scope="col">gradients</th>
                <th scope="col">weights after it</th>
              </tr>
            </thead>
            <tbody>
              {steps.map((one) => (
                <Row key={one.index} one={one} picked={one.index === chosen(pair, at)} props={props} />
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      <Panel title="Gradients and weights, by parameter" tools={<StepChoice {...props} />}>
        <Key pair={pair} lines={lines} />
        <Bars
          pair={pair}
          lines={lines}
          heads={["Gradient", "Weight"]}
          what="parameters"
          onPick={(row) => set({ view: "ops", row: String(row) }, true)}
        />
      </Panel>
    </>
  );
}

function Row({ one, picked, props }: { one: StepOf; picked: boolean; props: Props }) {
  const [a, b] = one.loss;
  const known = a !== null && b !== null;
  const off = known ? relative(a, b) : -1;
  return (
    <tr class={picked ? "picked" : ""}>
      <th scope="row">
        <button
          type="button"
          class="chart-pick"
          aria-pressed={picked}
          onClick={() => props.set({ step: String(one.index) })}
        >
          {one.a === one.b ? one.a : `${one.a} and ${one.b}`}
        </button>
      </th>
      <td class="number">{a === null ? "–" : figures(a)}</td>
      <td class={`number${known && a !== b ? " compare-other" : ""}`}>{b === null ? "–" : figures(b)}</td>
      <td class="number">{known && a === b ? "same" : apart(off)}</td>
      <td>
        <Sum of={one.gradients} link={props.link} />
      </td>
      <td>
        <Sum of={one.weights} link={props.link} />
      </td>
    </tr>
  );
}

/** Enough digits to see where two losses part. */
function figures(value: number): string {
  return Number.isFinite(value) ? String(Number(value.toPrecision(8))) : number(value);
}

export function relative(a: number, b: number): number {
  const size = Math.max(Math.abs(a), Math.abs(b));
  return Number.isFinite(size) && size > 0 ? Math.abs(a - b) / size : -1;
}

function Sum({ of, link }: { of: Summary; link: Props["link"] }) {
  if (of.count === 0) return <span class="quiet">–</span>;
  if (of.same === of.count) return <span class="compare-state compare-same">all {of.count}: same bits</span>;
  return (
    <>
      {of.row >= 0 && of.worst > 0 ? (
        <a class={of.differs > 0 ? "compare-differs" : "compare-agrees"} href={link("ops", { row: String(of.row) })}>
          up to {apart(of.worst)}
        </a>
      ) : (
        "other bits"
      )}{" "}
      <span class="quiet">
        {of.differs > 0 ? `${of.differs} of ${of.count} differ` : `${of.same} of ${of.count} with the same bits`}
      </span>
    </>
  );
}

/** The losses of all steps, where there are more than those that were recorded to be compared. */
function Losses({ pair }: Props) {
  const [a, b] = pair.sides;
  const palette = usePalette();
  const box = useRef<HTMLDivElement>(null);
  const made = useMemo(() => {
    const steps = [...new Set([...a.curve.step, ...b.curve.step])].sort((x, y) => x - y);
    const series: Series[] = [a, b].map((side, k) => {
      const known = new Map(Array.from(side.curve.step, (step, i) => [step, side.curve.loss[i]!]));
      return {
        name: k === 0 ? "A" : "B",
        curve: plainCurve(
          steps.map((step) => known.get(step) ?? 0),
          (i) => known.has(steps[i]!),
        ),
        colour: (p) => (k === 0 ? p.forward : p.backward),
        dash: k === 0 ? [] : [6, 3],
      };
    });
    return { steps, series };
  }, [pair]);
  if (made.steps.length < 4) return null;
  return (
    <div ref={box}>
      <Panel title="Loss" tools={<PngOf name="loss" within={box} />}>
        <Legend items={made.series.map((s) => ({ name: s.name, colour: s.colour(palette), dash: s.dash ?? [] }))} />
        <Lines
          label="Loss of both runs by step"
          x={made.steps}
          series={made.series}
          log={false}
          height={220}
          range={null}
        />
      </Panel>
    </div>
  );
}
