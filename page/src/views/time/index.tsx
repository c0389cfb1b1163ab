import "../../charts/charts.css";
import "./time.css";
import { useCallback, useMemo, useRef } from "preact/hooks";
import { opaque } from "../../charts/canvas";
import { Button, Choice, Panel } from "../../charts/panel";
import type { Column } from "../../charts/rows";
import { pair, paired, useSlow } from "../../charts/slow";
import { Table } from "../../charts/table";
import { clamped, zoomed } from "../../charts/zoom";
import type { Model } from "../../data/model";
import { callAt, callShown, callSteps } from "../../data/step";
import { CallChoice } from "../../parts/calls";
import { savePng } from "../../parts/save";
import { seconds } from "../../parts/words";
import { whole } from "../../route";
import type { View, ViewProps } from "../view";
import { aboutNode, type Spot } from "./about";
import { closest, Icicle } from "./icicle";
import { PhaseBar } from "./phases";
import { byModule, byOp, coverage, type ModuleTime, type OpTime } from "./tables";
import { timeline } from "./timeline";

function Time({ model, at, set, link }: ViewProps) {
  const { doc } = model;
  const number = callAt(model, at);
  const call = doc.calls[number]!;
  const timed = useMemo(() => call.time.some((t) => t > 0), [call]);
  const even = !timed || at.x === "order";
  const line = useMemo(() => timeline(model, call, even), [model, call, even]);
  const whole_ = line.begin[line.begin.length - 1]!;
  const [text, slide] = useSlow(at.range ?? "", (range) => set({ range }));
  const least = closest(whole_);
  const range = clamped(pair(text) ?? [0, whole_], whole_, least);
  const move = (r: readonly [number, number]): void => {
    const to = clamped(r, whole_, least);
    slide(to[1] - to[0] >= whole_ * 0.9999 ? "" : paired(to, 10));
  };
  const zoom = (factor: number): void => move(zoomed(range, factor, (range[0] + range[1]) / 2, whole_, least));
  const module = whole(at.module, doc.modules.length, -1);
  const node = whole(at.node, call.order.length, -1);
  const canvas = useRef<HTMLCanvasElement>(null);
  const pick = ({ row, stretch }: Spot): void => {
    const of = line.rows[row]!.of[stretch]!;
    set(
      row === line.rows.length - 1
        ? { node: of === node ? "" : String(of), module: "" }
        : { module: of === module ? "" : String(of), node: "" },
      true,
    );
  };
  const modules = useMemo(() => byModule(model, call), [model, call]);
  const ops = useMemo(() => byOp(model, call), [model, call]);
  const total = useMemo(() => ops.reduce((sum, o) => sum + o.seconds, 0), [ops]);
  const unit = useCallback(
    (v: number): string => (even ? (v === 0 ? "node 1" : String(v)) : v === 0 ? "0" : seconds(v)),
    [even],
  );
  const cover = coverage(total, call.seconds, line.sequence.length, line.measured, seconds);
  const top = modules.filter((m) => m.own > 0).sort((a, b) => b.own - a.own)[0];
  return (
    <div class="time">
      {doc.phases && <PhaseBar phases={doc.phases} />}
      <div class="chart-bar">
        <CallChoice model={model} shown={number} set={set} />
        {timed && (
          <Choice
            label="Along the axis"
            options={[
              ["", "Time"],
              ["order", "Order"],
            ]}
            value={even ? "order" : ""}
            onChange={(x) => set({ x, range: "" })}
          />
        )}
      </div>
      <Panel
        title={even ? "The backward in the order of its nodes" : "The backward along the time"}
        note={`${timed ? cover : "No node of this call was timed: each is as wide as every other."} Drag to move, Ctrl and the wheel to zoom, double click to zoom to a box.`}
        tools={
          <>
            <Button label="Zoom in" onClick={() => zoom(0.5)}>
              +
            </Button>
            <Button label="Zoom out" disabled={text === ""} onClick={() => zoom(2)}>
              −
            </Button>
            <Button disabled={text === ""} onClick={() => slide("")}>
              All
            </Button>
            <Button
              label="Save the picture as PNG"
              onClick={() => canvas.current && void savePng("backward-time.png", opaque(canvas.current))}
            >
              PNG
            </Button>
          </>
        }
      >
        {whole_ > 0 ? (
          <Icicle
            model={model}
            call={call}
            timeline={line}
            range={range}
            onRange={move}
            unit={unit}
            module={module}
            node={node}
            onPick={pick}
            canvas={canvas}
            label={`Timeline of backward call ${call.index}: ${line.sequence.length} nodes in ${line.rows.length - 1} rows of modules.${top ? ` Most time in ${top.name}, ${seconds(top.own)}.` : ""} Arrow keys go from box to box, plus and minus zoom, Enter selects. The tables below hold the same times.`}
          />
        ) : (
          <p class="chart-empty">No node of this call ran.</p>
        )}
        <Picked
          model={model}
          number={number}
          node={node}
          module={module}
          link={link}
          onClose={() => set({ node: "", module: "" })}
        />
      </Panel>
      {timed && (
        <div class="time-tables">
          <Panel title="By module">
            <Table
              rows={modules}
              columns={moduleColumns(total)}
              what="modules"
              start={{ column: "own time", down: true }}
              room={12}
              picked={(m) => m.module === module}
              onPick={(m) => set({ module: m.module === module ? "" : String(m.module), node: "" })}
            />
          </Panel>
          <Panel title="By kind of node">
            <Table
              rows={ops}
              columns={opColumns(total)}
              what="kinds of nodes"
              start={{ column: "time", down: true }}
              room={12}
            />
          </Panel>
        </div>
      )}
    </div>
  );
}

function Picked({
  model,
  number,
  node,
  module,
  link,
  onClose,
}: {
  model: Model;
  number: number;
  node: number;
  module: number;
  link: ViewProps["link"];
  onClose: () => void;
}) {
  const call = model.doc.calls[number]!;
  if (node < 0 && module < 0) return null;
  const nodes = model.nodes(call);
  const title = node >= 0 ? (nodes.strings[nodes.name[node]!] ?? "") : model.name(module);
  const pairs = node >= 0 ? aboutNode(model, call, node) : [];
  const to: Record<string, string> = {
    call: String(number),
    ...(node >= 0 ? { node: String(node) } : { module: String(module) }),
  };
  return (
    <p class="time-picked">
      <strong class="chart-mono">{title}</strong>
      {pairs.map(([name, value]) => (
        <span key={name}>
          <span class="quiet">{name}</span> {value}
        </span>
      ))}
      <a href={link("graph", to)}>Show in the graph</a>
      <Button label="Select nothing" onClick={onClose}>
        ✕
      </Button>
    </p>
  );
}

function share(part: number, total: number): string {
  return total > 0 ? `${((100 * part) / total).toFixed(1)}%` : "";
}

function moduleColumns(total: number): Column<ModuleTime>[] {
  return [
    { name: "module", value: (m) => m.name },
    { name: "class", value: (m) => m.class },
    {
      name: "own time",
      value: (m) => m.own,
      text: (m) => seconds(m.own),
      numeric: true,
      about: "Seconds of the nodes that are right in it",
    },
    {
      name: "share",
      value: (m) => (total > 0 ? m.own / total : 0),
      text: (m) => share(m.own, total),
      numeric: true,
      about: "Of the time of all nodes",
    },
    {
      name: "with inner",
      value: (m) => m.all,
      text: (m) => seconds(m.all),
      numeric: true,
      about: "With the modules inside it",
    },
    { name: "nodes", value: (m) => m.nodes, numeric: true },
  ];
}

function opColumns(total: number): Column<OpTime>[] {
  return [
    { name: "node", value: (o) => o.name },
    { name: "forward op", value: (o) => o.op },
    { name: "time", value: (o) => o.seconds, text: (o) => (o.measured ? seconds(o.seconds) : "–"), numeric: true },
    {
      name: "share",
      value: (o) => (total > 0 ? o.seconds / total : 0),
      text: (o) => share(o.seconds, total),
      numeric: true,
    },
    { name: "nodes", value: (o) => o.nodes, numeric: true },
    { name: "timed", value: (o) => o.measured, numeric: true },
  ];
}

export const timeView: View = {
  name: "time",
  title: "Time",
  empty: ({ doc }) =>
    doc.calls.length === 0
      ? "No backward call with its nodes is in this page. `backprobe run script.py` records them at its default level."
      : null,
  component: Time,
  steps: callSteps,
  of: "a graph",
  shows: (model, at) => callShown(model, at).map((one) => ({ ...one, what: "times" })),
};
