import "../../charts/charts.css";
import "./ranks.css";
import { useMemo } from "preact/hooks";
import { Choice, Panel } from "../../charts/panel";
import type { Column } from "../../charts/rows";
import { Table } from "../../charts/table";
import type { RankRow, RankWait } from "../../data/document";
import type { Model } from "../../data/model";
import { count, number, seconds } from "../../parts/words";
import type { View, ViewProps } from "../view";
import { RankMap } from "./map";
import type { Metric } from "./picture";

const METRICS: readonly (readonly [Metric, string])[] = [
  ["seconds", "Time"],
  ["gradient", "Gradient"],
  ["loss", "Loss"],
];
const NOTES: Readonly<Record<Metric, string>> = {
  seconds: "What each step took, waiting for the other ranks included.",
  gradient: "Norm of all gradients as the optimizer met them, in the steps where they were measured.",
  loss: "The loss of each rank's own batch, as far as backward calls tell it.",
};

const named = (rank: number | null): string => (rank === null ? "" : String(rank));

function rowColumns(model: Model): readonly Column<RankRow>[] {
  const finding = (row: RankRow): string =>
    row.finding < 0 ? "" : `${row.finding + 1}. ${model.doc.findings[row.finding]?.kind ?? ""}`;
  return [
    { name: "rank", value: (r) => r.rank ?? "", text: (r) => named(r.rank) || "none" },
    { name: "process", value: (r) => r.pid ?? -1, text: (r) => String(r.pid ?? ""), numeric: true },
    { name: "steps", value: (r) => r.steps, numeric: true },
    { name: "recorded", value: (r) => r.recorded ?? -1, text: (r) => String(r.recorded ?? ""), numeric: true },
    {
      name: "last loss",
      value: (r) => (r.loss === null ? NaN : Number(r.loss)),
      text: (r) => (r.loss === null ? "" : number(r.loss)),
      numeric: true,
      signed: true,
    },
    { name: "ended", value: (r) => (r.failed ? `▲ ${r.ended}` : r.ended) },
    { name: "first finding", value: finding },
    { name: "shown here", value: (r) => (r.shown ? "yes" : ""), about: "Whose steps the other views show" },
  ];
}

function waitColumns(model: Model): readonly Column<RankWait>[] {
  const line = (w: RankWait): string => {
    const site = model.doc.sites[w.site];
    return site ? `${site.file}:${site.line}` : "";
  };
  return [
    { name: "rank", value: (w) => w.rank ?? -1, text: (w) => named(w.rank), numeric: true, signed: true },
    { name: "waited for", value: (w) => (w.inside ? `${w.op} in ${w.inside}` : w.op) },
    { name: "number", value: (w) => w.number ?? -1, text: (w) => String(w.number ?? ""), numeric: true },
    { name: "group", value: (w) => w.group },
    { name: "line", value: line },
    {
      name: "began",
      value: (w) => w.began ?? -1,
      text: (w) => (w.began === null ? "" : seconds(w.began)),
      numeric: true,
      about: "After the first rank began",
    },
    { name: "waited", value: (w) => w.seconds, text: (w) => seconds(w.seconds), numeric: true },
    { name: "ended", value: (w) => w.ended },
  ];
}

function RanksPage({ model, at, set, step }: ViewProps) {
  const { rows, pictures, waits } = model.doc.ranks!;
  const metric = METRICS.find(([key]) => key === at.metric)?.[0] ?? "seconds";
  const differs = at.against === "others";
  const [ofRows, ofWaits] = useMemo(() => [rowColumns(model), waitColumns(model)], [model]);
  const ranks = rows.filter((r) => r.rank !== null).length;
  return (
    <div class="ranks">
      <Panel
        title={ranks > 0 ? count(ranks, "rank") : count(rows.length, "process").replace("processs", "processes")}
        note="Each process and how it ended. The other views show the steps of one of them: backprobe view RUN --rank N chooses it."
      >
        <Table
          rows={rows}
          columns={ofRows}
          what="ranks"
          room={8}
          onPick={(r) => stepOf(model, r) !== "" && set({ step: stepOf(model, r) })}
        />
      </Panel>
      {pictures && pictures.ranks.length > 0 && (
        <Panel
          title="Ranks over the steps"
          note={`${NOTES[metric]} A click selects the step.`}
          tools={
            <>
              <Choice
                label="What is shown"
                options={METRICS.map(([key, word]) => [key === "seconds" ? "" : key, word] as const)}
                value={metric === "seconds" ? "" : metric}
                onChange={(chosen) => set({ metric: chosen })}
              />
              <Choice
                label="Values, or what differs"
                options={[
                  ["", "Values"],
                  ["others", "Against the others"],
                ]}
                value={differs ? "others" : ""}
                onChange={(against) => set({ against })}
              />
            </>
          }
        >
          <RankMap
            pictures={pictures}
            metric={metric}
            differs={differs}
            step={step}
            onStep={(to) => set({ step: String(to) })}
          />
        </Panel>
      )}
      {waits.length > 0 && (
        <Panel title="Waits" note="Long stays in collective operations, in the order in which they began.">
          <Table rows={waits} columns={ofWaits} what="waits" room={14} />
        </Panel>
      )}
    </div>
  );
}

const stepOf = (model: Model, row: RankRow): string => String(model.doc.findings[row.finding]?.step ?? "");

export const ranksView: View = {
  name: "ranks",
  title: "Ranks",
  empty: ({ doc }) => (doc.ranks === null ? "This run is of one process." : null),
  component: RanksPage,
};
