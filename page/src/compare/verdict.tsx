import { Panel } from "../charts/panel";
import { Code } from "../parts/code";
import { Severity, Sign } from "../parts/severity";
import { count } from "../parts/words";
import { Course } from "./course";
import type { Blame, Comparison, Found, Suspect } from "./document";
import { marked } from "./pair";
import type { Props } from "./view";

const LEVELS = { identical: "good", rounding: "good", differs: "error", unseen: "warning" } as const;

/** The verdict in a few words. */
export function headline(one: Comparison): string {
  if (one.verdict === "identical") return "The same bits";
  if (one.verdict === "rounding") return one.given ? "The same but for rounding" : "The same calculation";
  return one.verdict === "unseen" ? "Cannot tell which operation" : "They differ";
}

/** The sentence below the headline, which does not say that again. */
function said(one: Comparison): string {
  const head = `${headline(one)}: `;
  const rest = one.result.startsWith(head) ? one.result.slice(head.length) : one.result;
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

export function Mark({ one }: { one: Comparison }) {
  const level = LEVELS[one.verdict];
  return (
    <span class={`compare-mark severity-${level}`}>
      <Sign level={level} /> {headline(one)}
    </span>
  );
}

export function Verdict({ pair, set, link }: Props) {
  const { doc } = pair;
  const pick = (row: number) => set({ view: "ops", row: String(row) }, true);
  return (
    <div class="compare-verdict">
      <section class={`chart-panel compare-said compare-said-${LEVELS[doc.verdict]}`} aria-label="Verdict">
        <h2>
          <Mark one={doc} />
        </h2>
        {doc.blame !== null && (
          <p class="compare-what">
            {suspicion(doc.blame)}: {doc.blame.what}.
          </p>
        )}
        <p>{said(doc)}</p>
        <p class="quiet">
          {count(doc.pairs, "operation")} paired; {doc.alone[0].toLocaleString("en-US")} only in A,{" "}
          {doc.alone[1].toLocaleString("en-US")} only in B.
        </p>
        {doc.notes.map((note) => (
          <p class="compare-note" key={note}>
            Note: {note}.
          </p>
        ))}
      </section>
      {doc.blame !== null && <Suspects blame={doc.blame} link={link} />}
      <Panel
        title="How far apart, operation by operation"
        note="In the order in which they ran, by the distance of what both gave, relative to its size. Click a dot to see the operation."
      >
        <Course pair={pair} row={-1} onPick={pick} />
      </Panel>
      <Early doc={doc} />
      {doc.findings.length > 0 && <Findings all={doc.findings} />}
    </div>
  );
}

/** What is named. */
function suspicion(blame: Blame): string {
  return blame.kind === "loses" ? "Rounding that piles up" : "The first that differs";
}

function Suspects({ blame, link }: { blame: Blame; link: Props["link"] }) {
  const { a, b } = blame;
  return (
    <Panel
      title={suspicion(blame)}
      tools={blame.row >= 0 && <a href={link("ops", { row: String(blame.row) })}>See it among the operations</a>}
    >
      <div class="compare-two">
        {(a !== null || blame.kind !== "loses") && <Card side="A" one={a} other={b} />}
        {(b !== null || blame.kind !== "loses") && <Card side="B" one={b} other={a} />}
      </div>
      {blame.lines.length > 0 && <Source blame={blame} />}
    </Panel>
  );
}

function Card({ side, one, other }: { side: string; one: Suspect | null; other: Suspect | null }) {
  if (one === null) {
    return (
      <div class="compare-card compare-gone">
        <h3>
          <span class="compare-letter">{side}</span> has no such operation
        </h3>
      </div>
    );
  }
  const rows: [string, string, string][] = [
    [
      "module",
      (one.module || "(model)") + (one.call > 1 ? `, call ${one.call}` : ""),
      (other?.module || "(model)") + ((other?.call ?? 1) > 1 ? `, call ${other!.call}` : ""),
    ],
    [
      "in the",
      `${one.phase === "sink" ? "results" : one.phase} of step ${one.step}`,
      other ? `${other.phase === "sink" ? "results" : other.phase} of step ${other.step}` : "",
    ],
    ["run by", one.node, other?.node ?? ""],
    ["line", one.file && `${one.file}:${one.line}`, other ? `${other.file}:${other.line}` : ""],
    ["called from", one.caller, other?.caller ?? ""],
    ["called with", one.arguments, other?.arguments ?? ""],
  ];
  return (
    <div class="compare-card">
      <h3>
        <span class="compare-letter">{side}</span> <code>{one.op}</code>
      </h3>
      <dl>
        {rows
          .filter(([, value]) => value !== "")
          .map(([name, value, its]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd class={name === "called with" || name === "line" ? "mono" : ""}>
                {other === null
                  ? value
                  : marked(value, its).map(([text, off], i) => (off ? <mark key={i}>{text}</mark> : text))}
              </dd>
            </div>
          ))}
      </dl>
    </div>
  );
}

/** The source of both side by side; lines that changed are coloured, and the one of the operation has a sign. */
function Source({ blame }: { blame: Blame }) {
  const line = (one: [number, string] | null, side: "a" | "b", state: string) => {
    const here = one !== null && one[0] === blame[side]?.line;
    const off = state === "changed" || state === side;
    return (
      <div class={`compare-line${off ? " compare-changed" : ""}${here ? " compare-here" : ""}`}>
        <span class="compare-lineno">{one?.[0] ?? ""}</span>
        <span class="compare-arrow">{here ? "▶" : off && one ? "±" : ""}</span>
        <code>{one ? <Code text={one[1]} /> : ""}</code>
      </div>
    );
  };
  const gone = blame.a === null || blame.b === null;
  return (
    <div class={`compare-source${gone ? " compare-alone" : ""}`} role="group" aria-label="Source of both">
      {(["a", "b"] as const)
        .filter((side) => blame[side] !== null)
        .map((side) => (
          <div class="compare-listing" key={side}>
            <p>
              <span class="compare-letter">{side.toUpperCase()}</span> {blame[side]!.file}
            </p>
            <div class="compare-lines">
              {blame.lines.map((row, i) => (
                <div key={i}>{line(row[side], side, gone ? "same" : row.state)}</div>
              ))}
            </div>
          </div>
        ))}
    </div>
  );
}

function Early({ doc }: { doc: Comparison }) {
  return (
    <Panel
      title="Before any number"
      note={
        doc.early.length > 0
          ? "What differs before anything is calculated: it may explain the rest."
          : "Versions, flags, variables, generators, settings of modules and optimizers and weights at the start are the same."
      }
    >
      {doc.early.length > 0 && (
        <div class="compare-wide">
          <table class="compare-table">
            <thead>
              <tr>
                <th scope="col">what</th>
                <th scope="col">A</th>
                <th scope="col">B</th>
              </tr>
            </thead>
            <tbody>
              {doc.early.map((one, i) => (
                <tr key={i}>
                  {one.a || one.b ? (
                    <>
                      <th scope="row">
                        {one.what}
                        {one.of && <span class="quiet"> of {one.of}</span>}
                      </th>
                      <Two one={one.a} other={one.b} />
                      <Two one={one.b} other={one.a} />
                    </>
                  ) : (
                    <td colSpan={3} class="compare-differs">
                      {one.what}
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {doc.same.length > 0 && (
        <details>
          <summary>{count(doc.same.length, "setting")} that are the same</summary>
          <table class="compare-table">
            <tbody>
              {doc.same.map(([kind, name, value]) => (
                <tr key={`${kind} ${name}`}>
                  <td class="quiet">{kind}</td>
                  <th scope="row">{name}</th>
                  <td class="mono">{value}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      )}
    </Panel>
  );
}

function Two({ one, other }: { one: string; other: string }) {
  return <td class="mono">{marked(one, other).map(([text, off], i) => (off ? <mark key={i}>{text}</mark> : text))}</td>;
}

function Findings({ all }: { all: readonly Found[] }) {
  return (
    <Panel title="Findings" note="What was found in either run; those of one run only come first.">
      <div class="compare-wide">
        <table class="compare-table">
          <thead>
            <tr>
              <th scope="col">finding</th>
              <th scope="col">A</th>
              <th scope="col">B</th>
            </tr>
          </thead>
          <tbody>
            {all.map((one, i) => (
              <tr key={i}>
                <th scope="row">
                  <Severity level={one.severity} /> {one.title}
                  <div class="quiet">
                    {one.kind}
                    {one.module ? ` in ${one.module}` : ""}
                  </div>
                </th>
                {(["a", "b"] as const).map((side) => (
                  <td key={side} class={`compare-yes${one.a === one.b ? "" : " compare-differs"}`}>
                    {one[side] ? "yes" : "no"}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
