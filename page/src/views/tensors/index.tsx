import "../../charts/charts.css";
import "./tensors.css";
import { useMemo, useRef, useState } from "preact/hooks";
import { opaque } from "../../charts/canvas";
import { Button, Choice, Panel } from "../../charts/panel";
import type { Column } from "../../charts/rows";
import { Table } from "../../charts/table";
import { shapeSaid } from "../../data/said";
import { nearest } from "../../data/step";
import { savePng, saveSvg } from "../../parts/save";
import { count, number } from "../../parts/words";
import type { View, ViewProps } from "../view";
import { type Captured, type Group, groups } from "./groups";
import { TensorMap } from "./map";
import { Ridges } from "./ridges";

const COLUMNS: readonly Column<Captured>[] = [
  { name: "step", value: (t) => t.step, text: (t) => String(t.step), numeric: true },
  { name: "shape", value: (t) => shapeSaid(t.shape) },
  { name: "dtype", value: (t) => t.dtype },
  ...(["mean", "std", "min", "max"] as const).map((key) => ({
    name: key,
    value: (t: Captured) => Number(t[key]),
    text: (t: Captured) => number(t[key]),
    numeric: true,
    signed: true,
  })),
  {
    name: "zeros",
    value: (t) => (t.numel > 0 ? t.zeros / t.numel : 0),
    text: (t) => (t.numel > 0 ? `${((100 * t.zeros) / t.numel).toFixed(1)}%` : ""),
    numeric: true,
  },
  { name: "NaN", value: (t) => t.nan, numeric: true },
  { name: "Inf", value: (t) => t.inf, numeric: true },
  { name: "values", value: (t) => t.numel, numeric: true },
];

const groupAt = (all: readonly Group[], at: ViewProps["at"]): Group => all.find((g) => g.key === at.tensor) ?? all[0]!;
const stepsOf = (group: Group): number[] => group.tensors.map((t) => t.step);

function Tensors({ model, at, set, step: chosen }: ViewProps) {
  const all = useMemo(() => groups(model.doc.tensors), [model]);
  const group = groupAt(all, at);
  const tensor = group.tensors[nearest(stepsOf(group), chosen)]!;
  const svg = useRef<SVGSVGElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const pickStep = (n: number): void => set({ step: String(n), call: "" });
  const name = `${group.kind} of ${group.name}`;
  const file = name.replaceAll(/[^\w.]+/g, "-");
  return (
    <div class="tensors-columns">
      <List all={all} chosen={group.key} onChoose={(key) => set({ tensor: key }, true)} />
      <div>
        <Panel
          title={`${group.name}: ${group.kind}`}
          note={`Values over ${count(group.tensors.length, "step")}, on one axis; the area counts the values. A click chooses a step.`}
          tools={
            <>
              <Choice
                label="Axis of the histograms"
                options={[
                  ["", "Symlog"],
                  ["linear", "Linear"],
                ]}
                value={at.scale === "linear" ? "linear" : ""}
                onChange={(scale) => set({ scale })}
              />
              <Button
                label="Save the histograms as SVG"
                onClick={() => svg.current && saveSvg(`${file}.svg`, svg.current)}
              >
                SVG
              </Button>
              <Button
                label="Save the histograms as PNG"
                onClick={() => svg.current && void savePng(`${file}.png`, svg.current)}
              >
                PNG
              </Button>
            </>
          }
        >
          <Ridges
            tensors={group.tensors}
            name={name}
            step={tensor.step}
            linear={at.scale === "linear"}
            onStep={pickStep}
            svg={svg}
          />
        </Panel>
        {tensor.map && (
          <Panel
            title={`Map, step ${tensor.step}`}
            note={`${shapeSaid(tensor.shape)} ${tensor.dtype}: columns are the last dimension, rows all others together.`}
            tools={
              <Button
                label="Save the map as PNG"
                onClick={() => canvas.current && void savePng(`${file}-map.png`, opaque(canvas.current))}
              >
                PNG
              </Button>
            }
          >
            <TensorMap tensor={tensor} canvas={canvas} />
          </Panel>
        )}
        <Panel title="Numbers by step">
          <Table
            key={group.key}
            rows={group.tensors}
            columns={COLUMNS}
            what="steps"
            room={10}
            picked={(t) => t.step === tensor.step}
            onPick={(t) => pickStep(t.step)}
          />
        </Panel>
      </div>
    </div>
  );
}

function List({ all, chosen, onChoose }: { all: readonly Group[]; chosen: string; onChoose: (key: string) => void }) {
  const [words, find] = useState("");
  const low = words.trim().toLowerCase();
  const found = all.filter((g) => g.key.toLowerCase().includes(low));
  return (
    <section class="chart-panel tensors-list" aria-label="Captured tensors">
      <input
        type="search"
        placeholder={`Find among ${count(all.length, "tensor")}`}
        aria-label="Find a tensor"
        value={words}
        onInput={(e) => find(e.currentTarget.value)}
      />
      <ul>
        {found.slice(0, 200).map((g) => {
          const bad = g.tensors.find((t) => t.nan + t.inf > 0);
          return (
            <li key={g.key}>
              <button type="button" aria-pressed={g.key === chosen} onClick={() => onChoose(g.key)}>
                <span class="chart-mono">{g.name}</span>
                <small>
                  {g.kind}, {count(g.tensors.length, "step")}
                  {bad && <b> · not finite in step {bad.step}</b>}
                </small>
              </button>
            </li>
          );
        })}
      </ul>
      {found.length > 200 && <p class="quiet">{found.length - 200} more: type a part of the name.</p>}
    </section>
  );
}

export const tensorsView: View = {
  name: "tensors",
  title: "Tensors",
  empty: ({ doc }) =>
    doc.tensors.length === 0
      ? "No tensors were captured in this run.\nName the modules to look into:  backprobe run --histograms 'encoder.*' script.py"
      : null,
  component: Tensors,
  steps: ({ doc }, at) => stepsOf(groupAt(groups(doc.tensors), at)),
  of: "this tensor",
  shows: ({ doc }, at, step) => {
    const group = groupAt(groups(doc.tensors), at);
    const found = group.tensors[nearest(stepsOf(group), step)]!;
    return [{ what: group.name, step: found.step }];
  },
};
