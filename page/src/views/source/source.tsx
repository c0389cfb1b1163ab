import "./source.css";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Choice } from "../../charts/panel";
import { callAt } from "../../data/step";
import { CallChoice } from "../../parts/calls";
import { starts } from "../../parts/python";
import { saveCsv } from "../../parts/save";
import { seconds } from "../../parts/words";
import { whole } from "../../route";
import type { ViewProps } from "../view";
import { About } from "./about";
import { byFile, chief, costs, foremost, heldByOneLine, MARKS, marked, next } from "./costs";
import { keptBeside, rowsOf } from "./gaps";
import { Listing, ROW } from "./listing";

/** The run's source files, each line with what it cost and what its gradients did. */
export function Source({ model, at, set, link }: ViewProps) {
  const { calls, sources } = model.doc;
  const number = callAt(model, at);
  const call = calls[number];
  const times = useMemo(() => byFile(model, call), [model, call]);
  const asked = sources.findIndex((one) => one.file === at.file);
  const mine = chief(model, times);
  const library = chief(model, times, true);
  const told = model.doc.findings.length > 0;
  const within = useMemo(() => !told && library >= 0 && heldByOneLine(model, call), [model, call, told, library]);
  const source = sources[asked >= 0 ? asked : mine >= 0 && !within ? mine : library]!;
  const found = useMemo(() => costs(model, source.file, source.lines.length, call), [model, source, call]);
  const begins = useMemo(() => starts(source.lines), [source]);
  const marks = useMemo(() => marked(found), [found]);
  const line = whole(at.line, source.lines.length + 1, 0);
  const box = useRef<HTMLDivElement>(null);

  const rows = useMemo(() => rowsOf(source.lines), [source]);
  const show = (target: number) => {
    if (box.current && target > 0 && target < rows.length)
      box.current.scrollTop = (rows[target]! - Math.floor(box.current.clientHeight / 3 / ROW)) * ROW;
  };
  // A file that is opened shows the line that the address names, else the first finding's, else the first one with a mark,
  // and of a library's the first with nodes.
  const used = source.library ? found.nodes.findIndex((count) => count > 0) : 0;
  useEffect(() => show(line || foremost(found) || (marks[0] ?? used)), [source]);
  const select = (target: number) => set({ file: source.file, line: target > 0 ? String(target) : "" });
  const jump = (way: 1 | -1) => {
    const target = next(marks, line, way);
    select(target);
    show(target);
  };
  const keys = (event: KeyboardEvent) => {
    const move: Record<string, () => void> = {
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      n: () => jump(1),
      p: () => jump(-1),
    };
    const step = (way: 1 | -1) => {
      const target = keptBeside(source.lines, line, way);
      if (target === 0) return;
      select(target);
      const top = rows[target]! * ROW;
      const view = box.current!;
      if (top < view.scrollTop + ROW || top > view.scrollTop + view.clientHeight - 2 * ROW) show(target);
    };
    const action = move[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  };
  const save = () =>
    saveCsv(
      `${source.file.replace(/^.*[\\/]/, "")}.csv`,
      ["line", "text", "mean_backward_seconds", "nodes", "gradient_norm", "bytes_kept", "marks", "findings"],
      source.lines.map((text, i) => [
        i + 1,
        text,
        found.time[i + 1]! < 0 ? "" : found.time[i + 1]!,
        found.nodes[i + 1]!,
        found.came[i + 1]! < 0 ? "" : found.came[i + 1]!,
        model.doc.memory === null ? "" : found.kept[i + 1]!,
        MARKS.filter((one) => found.marks[i + 1]! & one.bit)
          .map((one) => one.word)
          .join("; "),
        (found.roles.get(i + 1) ?? []).map((one) => `${one.finding + 1} ${one.role}`).join("; "),
      ]),
    );

  return (
    <div class="source">
      <div class="source-bar">
        {mine >= 0 && library >= 0 && (
          <Choice
            label="Whose code"
            options={[
              ["mine", "My code"],
              ["library", "Libraries"],
            ]}
            value={source.library ? "library" : "mine"}
            onChange={(whose) => set({ file: sources[whose === "mine" ? mine : library]!.file, line: "" }, true)}
          />
        )}
        <label>
          <span>File</span>
          <select value={source.file} onChange={(event) => set({ file: event.currentTarget.value, line: "" }, true)}>
            {sources
              .filter((one) => one.library === source.library)
              .map((one) => (
                <option key={one.file} value={one.file}>
                  {one.file}
                  {(times.get(one.file) ?? 0) > 0 ? ` (${seconds(times.get(one.file)!)})` : ""}
                </option>
              ))}
          </select>
        </label>
        <CallChoice model={model} shown={number} set={set} />
        <span class="source-jump" role="group" aria-label="Marked lines">
          <button
            type="button"
            disabled={marks.length === 0}
            onClick={() => jump(-1)}
            title="Previous marked line (p)"
            aria-label="Previous marked line"
          >
            ↑
          </button>
          <button
            type="button"
            disabled={marks.length === 0}
            onClick={() => jump(1)}
            title="Next marked line (n)"
            aria-label="Next marked line"
          >
            ↓
          </button>
          <span class="quiet">{marks.length === 0 ? "no line is marked" : place(marks, line)}</span>
        </span>
        <button type="button" class="source-csv" onClick={save}>
          CSV
        </button>
      </div>
      <About model={model} number={number} file={source.file} line={line} found={found} link={link} />
      <Listing
        source={source}
        rows={rows}
        begins={begins}
        found={found}
        memory={model.doc.memory !== null && !source.library}
        line={line}
        box={box}
        select={select}
        keys={keys}
        link={link}
      />
    </div>
  );
}

/** "2 of 5 marked lines". */
function place(marks: readonly number[], line: number): string {
  const at = marks.indexOf(line);
  const all = `${marks.length} marked ${marks.length === 1 ? "line" : "lines"}`;
  return at < 0 ? all : `${at + 1} of ${all}`;
}
