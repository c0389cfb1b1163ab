import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Source } from "../../data/document";
import { Code } from "../../parts/code";
import { usePrinting } from "../../parts/printing";
import { bytes, norm, seconds } from "../../parts/words";
import type { ViewProps } from "../view";
import { type Costs, mark } from "./costs";
import { endOfGap, NOT_KEPT } from "./gaps";

/** Height of a line in pixels, as in source.css. */
export const ROW = 20;
/** Lines that are drawn together. Those out of sight are plain text, so that the browser's own search still finds it. */
const CHUNK = 100;

interface Props {
  source: Source;
  /** The row of each line; see `gaps.ts`. */
  rows: Int32Array;
  /** In what each line starts; see `parts/python.ts`. */
  begins: Uint8Array;
  found: Costs;
  memory: boolean;
  line: number;
  box: RefObject<HTMLDivElement | null>;
  select: (line: number) => void;
  keys: (event: KeyboardEvent) => void;
  link: ViewProps["link"];
}

export function Listing(props: Props) {
  const { source, found, memory, box, keys } = props;
  const shown = { memory, marks: found.marks.some((one) => one !== 0), roles: found.roles.size > 0 };
  const widths = ["time", "gradient", shown.memory && "kept", shown.marks && "marks", shown.roles && "roles", "number"]
    .filter(Boolean)
    .map((one) => `var(--source-${one})`);
  const style = { "--source-columns": widths.join(" "), "--source-gutter": `calc(${widths.join(" + ")})` };
  const chunks = Array.from({ length: Math.ceil(source.lines.length / CHUNK) }, (_, i) => i * CHUNK);
  return (
    <div
      class="source-listing"
      style={style}
      ref={box}
      tabIndex={0}
      role="group"
      aria-label={`Lines of ${source.file}; arrows choose one, n and p go from mark to mark`}
      onKeyDown={keys}
    >
      <div class="source-head source-row" aria-hidden="true">
        <span>backward</span>
        <span class="source-cell-gradient">gradient</span>
        {shown.memory && <span class="source-cell-kept">kept</span>}
        {shown.marks && <span class="source-mark">marks</span>}
        {shown.roles && <span class="source-mark">finding</span>}
        <span class="source-number">line</span>
        <span />
      </div>
      {chunks.map((from) => (
        <Chunk key={`${source.file} ${from}`} from={from} shown={shown} {...props} />
      ))}
      {source.lines.length === 0 && <p class="quiet">This file is empty.</p>}
    </div>
  );
}

/** Which columns there are besides those that are always there. */
interface Shown {
  memory: boolean;
  marks: boolean;
  roles: boolean;
}

function Chunk(props: Props & { from: number; shown: Shown }) {
  const { from, source, rows, box } = props;
  const [near, setNear] = useState(from === 0);
  const printing = usePrinting();
  const self = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const watch = new IntersectionObserver(([entry]) => setNear(entry!.isIntersecting), {
      root: box.current,
      rootMargin: "600px",
    });
    watch.observe(self.current!);
    return () => watch.disconnect();
  }, []);
  const numbers: number[] = [];
  for (let line = from + 1; line <= Math.min(from + CHUNK, source.lines.length); line++)
    if (rows[line] !== rows[line - 1]) numbers.push(line);
  return (
    <div ref={self} style={{ height: `${numbers.length * ROW}px` }}>
      {near || printing ? (
        numbers.map((number) => {
          const text = source.lines[number - 1]!;
          if (text === NOT_KEPT) return <Gap key={number} first={number} last={endOfGap(source.lines, number)} />;
          return <Row key={number} number={number} text={text} {...props} />;
        })
      ) : (
        <pre class="source-far">{numbers.map((number) => source.lines[number - 1]).join("\n")}</pre>
      )}
    </div>
  );
}

/** Lines that the run has not kept. */
function Gap({ first, last }: { first: number; last: number }) {
  return (
    <div class="source-gap quiet">
      {last > first ? `Lines ${first} to ${last} were not kept` : `Line ${first} was not kept`}
    </div>
  );
}

function Row({
  number,
  text,
  begins,
  found,
  shown,
  line,
  select,
  link,
}: Props & { number: number; text: string; shown: Shown }) {
  const time = found.time[number]!;
  const kept = found.kept[number]!;
  const gravest = mark(found.marks[number]!);
  const roles = found.roles.get(number);
  return (
    <div
      class={`source-row ${found.nodes[number]! > 0 ? "" : "source-idle"} ${roles ? "source-named" : ""}`}
      aria-current={number === line ? "true" : undefined}
      onClick={() => select(number === line ? 0 : number)}
    >
      <span class="source-cell">
        {time >= 0 && found.most.time > 0 && (
          <span class="source-bar-time" style={{ width: `${(100 * time) / found.most.time}%` }} />
        )}
        <span>{time >= 0 ? seconds(time) : ""}</span>
      </span>
      <span class="source-cell source-cell-gradient">{found.nodes[number]! > 0 ? norm(found.came[number]) : ""}</span>
      {shown.memory && (
        <span class="source-cell source-cell-kept">
          {kept > 0 && <span class="source-bar-kept" style={{ width: `${(100 * kept) / found.most.kept}%` }} />}
          <span>{kept > 0 ? bytes(kept) : ""}</span>
        </span>
      )}
      {shown.marks && (
        <span class={`source-mark ${gravest && gravest.bit !== 8 ? "source-bad" : ""}`} title={gravest?.long}>
          {gravest && (
            <>
              {gravest.sign} <span>{gravest.word}</span>
            </>
          )}
        </span>
      )}
      {shown.roles && <span class="source-mark source-roles">{roles && <Roles roles={roles} link={link} />}</span>}
      <span class="source-number">{number}</span>
      <span class="source-text">
        <Code text={text} start={begins[number - 1]} />
      </span>
    </div>
  );
}

/** The first part that a line plays in findings, and how many more there are; all of them are in the words on the line. */
function Roles({ roles, link }: { roles: { role: string; finding: number }[]; link: ViewProps["link"] }) {
  const { role, finding } = roles[0]!;
  const all = roles.map((one) => `${one.role} of finding ${one.finding + 1}`).join(", ");
  return (
    <a href={link("findings", { finding: String(finding) })} title={all}>
      ▸
      <span>
        {" "}
        {role} ({finding + 1}){roles.length > 1 && ` +${roles.length - 1}`}
      </span>
    </a>
  );
}
