import { useState } from "preact/hooks";
import type { Finding } from "../../data/document";
import type { Model } from "../../data/model";
import { Copy } from "../../parts/copy";
import { shorten } from "../../parts/names";
import { Severity, Sign, WORDS } from "../../parts/severity";
import { ledgered, toLedger } from "../flow/ledger";
import { alarmOf, toAlarm } from "../levels/alarms";
import { HOLDING } from "../memory/grown";
import type { ViewProps } from "../view";
import { Evidence } from "./evidence-table";
import { excerpts } from "./excerpt";
import { Lines } from "./lines";
import { Strip } from "./strip";
import { asMarkdown, asText } from "./words";

interface Props {
  model: Model;
  number: number;
  finding: Finding;
  open: boolean;
  toggle: () => void;
  link: ViewProps["link"];
}

/** Parameters that are listed before the others are folded. */
const FEW = 12;

/** A finding: a line when it is folded, else all that is known of it. */
export function Card({ model, number, finding, open, toggle, link }: Props) {
  const id = `finding-${number}`;
  const main = finding.sites[0];
  const [lit, light] = useState(-1);
  return (
    <article class={`findings-card findings-${finding.severity} ${open ? "findings-open" : ""}`} aria-labelledby={id}>
      <h3 class="findings-head" id={id}>
        <button type="button" aria-expanded={open} aria-controls={`${id}-body`} onClick={toggle}>
          <svg class="findings-fold" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
            <path d="M3 1l4 4-4 4" />
          </svg>
          <span class="findings-severity">
            {open ? <Severity level={finding.severity} /> : <Short level={finding.severity} />}
          </span>
          <span class="findings-title">{finding.title}</span>
          {!open && <span class="findings-where mono">{main ? model.place(main.site) : (finding.module ?? "")}</span>}
        </button>
      </h3>
      {open && (
        <div class="findings-body" id={`${id}-body`}>
          <p class="findings-sub">
            <code title="The kind of finding; the documentation has a page on each">{finding.kind}</code>
            <span title="How sure this is">{finding.confidence}</span>
            <About model={model} finding={finding} link={link} />
          </p>
          <Strip model={model} finding={finding} step={stepOf(model, finding)} lit={lit} light={light} link={link} />
          <div class="findings-columns">
            <div class="findings-code">
              {excerpts(model.doc, finding).map((one, i) => (
                <Lines
                  key={i}
                  excerpt={one}
                  meanings={Object.fromEntries(finding.sites.map((one) => [one.role, one.meaning]))}
                  main={i === 0}
                  lit={model.doc.sites[lit]}
                  step={stepOf(model, finding)}
                  link={link}
                />
              ))}
              {finding.sites.length === 0 && <p class="quiet">No source line is known for this.</p>}
            </div>
            <div class="findings-side">
              {finding.advice && (
                <section class="findings-advice">
                  <h4>What to do</h4>
                  <p>{finding.advice}</p>
                </section>
              )}
              <Parameters model={model} finding={finding} link={link} />
              {Object.keys(finding.evidence).length > 0 && (
                <section>
                  <h4>Evidence</h4>
                  <Evidence value={finding.evidence} />
                </section>
              )}
              <span class="findings-buttons">
                <Copy label="Copy as text" text={() => asText(model.doc, [number])} />
                <Copy
                  label="Copy as Markdown"
                  title="For an issue tracker"
                  text={() => asMarkdown(model.doc, [number])}
                />
              </span>
            </div>
          </div>
        </div>
      )}
    </article>
  );
}

/** The step of a finding as a part of an address; links from it go there. */
export function stepOf({ doc }: Model, finding: Finding): Record<string, string> {
  const step = finding.step ?? doc.calls[finding.at?.[0] ?? -1]?.step;
  return step === undefined ? {} : { step: String(step) };
}

function Short({ level }: { level: Finding["severity"] }) {
  return (
    <span class={`severity severity-${level}`}>
      <Sign level={level} />
      <span class="findings-word">{WORDS[level]}</span>
    </span>
  );
}

/** Module, node, tensor, step, rank: with links to where they are shown. */
function About({ model, finding, link }: { model: Model; finding: Finding; link: ViewProps["link"] }) {
  const { module, node, at, step } = finding;
  const shown = step !== null && model.doc.steps.index.includes(step);
  const here = stepOf(model, finding);
  const alarm = alarmOf(model.doc, finding);
  const parameter = ledgered(model.doc, finding);
  const inGraph = at ? link("graph", { ...here, call: String(at[0]), node: String(at[1]) }) : null;
  return (
    <>
      {module !== null && (
        <span>
          module <b class="mono">{module || "(model)"}</b>
        </span>
      )}
      {node !== null && (
        <span>
          node{" "}
          {inGraph ? (
            <a class="mono" href={inGraph}>
              {node}
            </a>
          ) : (
            <b class="mono">{node}</b>
          )}
        </span>
      )}
      {node === null && inGraph && <a href={inGraph}>show in the graph</a>}
      {finding.tensor && (
        <span>
          tensor <b class="mono">{finding.tensor}</b>
        </span>
      )}
      {step !== null && <span>{shown ? <a href={link("steps", here)}>step {step}</a> : `step ${step}`}</span>}
      {HOLDING.includes(finding.kind) && (
        <a href={link("memory", here)}>
          {finding.kind === "saved-memory" ? "show what is kept" : "memory over the steps"}
        </a>
      )}
      {alarm && <a href={link("levels", { ...here, ...toAlarm(alarm) })}>levels over the steps</a>}
      {parameter >= 0 && (
        <a href={link("flow", { ...here, ...toLedger(parameter) })}>
          ledger of <span class="mono">{shorten(model.doc.parameters[parameter]!.name, 40)}</span>
        </a>
      )}
      {finding.rank !== null && <span>rank {finding.rank}</span>}
    </>
  );
}

function Parameters({ model, finding, link }: { model: Model; finding: Finding; link: ViewProps["link"] }) {
  const names = finding.parameters;
  if (names.length === 0) return null;
  const chips = (some: readonly string[]) =>
    some.map((name) => {
      const number = model.doc.parameters.findIndex((one) => one.name === name);
      if (number < 0)
        return (
          <span key={name} class="findings-chip mono">
            {shorten(name, 48)}
          </span>
        );
      return (
        <a
          key={name}
          class="findings-chip mono"
          href={link("flow", { ...stepOf(model, finding), parameter: String(number) })}
          title={name}
        >
          {shorten(name, 48)}
        </a>
      );
    });
  return (
    <section>
      <h4>{names.length === 1 ? "Parameter" : `${names.length.toLocaleString("en-US")} parameters`}</h4>
      <div class="findings-chips">{chips(names.slice(0, FEW))}</div>
      {names.length > FEW && (
        <details>
          <summary>{names.length - FEW} more</summary>
          <div class="findings-chips">{chips(names.slice(FEW))}</div>
        </details>
      )}
    </section>
  );
}
