import { bytes as bytesText, norm } from "../../parts/words";
import { BAD, FORWARD, MADE, type Metric, type Metrics, RAISED, ZERO } from "./metrics";
import { nodeFacts } from "./names";
import { type Look, look, type Scale, said } from "./scale";

/** One half of a box: forward or backward. Only a half that shows the metric has a look. */
export interface Cell {
  text: string;
  look: Look | null;
  /** In words. */
  title: string;
}

/** What a box says of the forward and of the backward. */
export function cells(metrics: Metrics, scale: Scale, box: number): { forward: Cell; backward: Cell } {
  if (scale.metric === "bad") return badCells(metrics, box);
  const value = metrics.value(scale.metric, box);
  const forward = scale.metric === "bytes" ? keptCell(metrics, scale, box) : forwardCell(metrics, box);
  if (scale.metric === "gradient" || scale.metric === "bytes") {
    const gradient = metrics.gradient(box);
    const shown = scale.metric === "gradient" ? look(scale, gradient) : null;
    return {
      forward,
      backward: { text: norm(gradient), look: shown, title: `gradient norm ${gradientWords(gradient)}` },
    };
  }
  const text = said(scale.metric, value);
  const what = scale.metric === "time" ? `time in backward, ${metrics.mean}` : "place in the order of the backward";
  return { forward, backward: { text, look: look(scale, value), title: `${what}: ${text}` } };
}

function forwardCell(metrics: Metrics, box: number): Cell {
  if (box < 0) {
    const { op, place } = nodeFacts(metrics.h, ~box);
    const leaf = metrics.h.nodes.seq[~box]! < 0;
    const file = place.slice(Math.max(place.lastIndexOf("/"), place.lastIndexOf("\\")) + 1);
    return {
      text: leaf ? "" : [op, file].filter(Boolean).join(" "),
      look: null,
      title: `made by ${op || "–"} ${place}`,
    };
  }
  const output = metrics.output(box);
  return {
    text: norm(output),
    look: null,
    title: `norm of the output ${gradientWords(output)}${output < 0 ? "" : metrics.outputStep}`,
  };
}

function keptCell(metrics: Metrics, scale: Scale, box: number): Cell {
  const { bytes, shared } = metrics.bytes(box);
  const text = bytes < 0 ? "–" : `${shared && bytes > 0 ? "≈" : ""}${bytesText(Math.round(bytes))}`;
  const note = shared ? ", what an op keeps shared out evenly among its nodes" : "";
  return {
    text,
    look: look(scale, bytes),
    title: bytes < 0 ? "bytes kept: not recorded" : `${text} kept for backward${note}`,
  };
}

function badCells(metrics: Metrics, box: number): { forward: Cell; backward: Cell } {
  const size = box >= 0 ? metrics.h.groups[box]!.end - metrics.h.groups[box]!.start : 1;
  const [forward, bad, made] = [FORWARD, BAD, MADE].map((bit) => metrics.count(bit, box)) as [number, number, number];
  const share = (n: number): string => (size > 1 ? ` ${n}/${size}` : "");
  const none: Look | null = metrics.run(box) > 0 ? null : { kind: "unknown" };
  return {
    forward: metrics.beganForward(box)
      ? { text: "began here", look: { kind: "began" }, title: "the first result of the forward that was not finite" }
      : forward
        ? {
            text: `not finite${share(forward)}`,
            look: { kind: "bad" },
            title: "results of the forward were not finite",
          }
        : forwardCell(metrics, box),
    backward: made
      ? { text: "began here", look: { kind: "began" }, title: "made the first gradient that is not finite" }
      : bad
        ? { text: `spread${share(bad)}`, look: { kind: "bad" }, title: "got gradients that are not finite" }
        : {
            text: none ? "did not run" : "finite",
            look: none,
            title: none ? "no node ran" : "all gradients that came in were finite",
          },
  };
}

function gradientWords(value: number): string {
  if (value < 0) return "not measured";
  return value === 0 ? "exactly 0" : norm(value);
}

export interface Sign {
  text: string;
  title: string;
  bad: boolean;
}

/** Short words for what is wrong with a box, worst first. */
export function signs(metrics: Metrics, box: number, metric: Metric): Sign[] {
  const found: Sign[] = [];
  const inside = box >= 0 ? " inside" : " here";
  if (metrics.count(RAISED, box)) found.push({ text: "raised", title: `the call raised${inside}`, bad: true });
  if (metrics.count(MADE, box) && metric !== "bad") {
    found.push({ text: "✕ first bad", title: `the first gradient that is not finite was made${inside}`, bad: true });
  }
  const zero = metrics.count(ZERO, box);
  if (zero && metrics.gradient(box) !== 0)
    found.push({ text: "0 inside", title: `${zero} nodes got gradients that are exactly zero`, bad: false });
  return found;
}

/** What a node's marks say. */
export function markWords(marks: number): string[] {
  const words: string[] = [];
  if (marks & RAISED) words.push("The backward call raised an error in this node.");
  if (marks & MADE)
    words.push("It made the first gradient that is not finite: what came in was finite, what went out was not.");
  else if (marks & BAD) words.push("A gradient that came in was not finite (NaN or Inf).");
  if (marks & FORWARD) words.push("Its result in the forward was not finite (NaN or Inf).");
  if (marks & ZERO) words.push("Every gradient that came in was exactly zero.");
  return words;
}
