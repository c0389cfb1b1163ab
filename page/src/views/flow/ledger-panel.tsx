import "./ledger.css";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Button, Panel } from "../../charts/panel";
import type { LedgerBuffer, LedgerChanges, LedgerEvent, LedgerRow } from "../../data/document";
import type { Model } from "../../data/model";
import { saveCsv } from "../../parts/save";
import { count } from "../../parts/words";
import type { ViewProps } from "../view";
import { type Account, accountOf, type Book, movement, often, toLedger } from "./ledger";

/** Parameters with the same account that are named before the others are folded. */
const NAMED = 6;
/** Of a file with a longer name the folder is left out. */
const LONG = 30;

interface Props {
  model: Model;
  parameter: number;
  /** A link led to it: it comes into sight. */
  arrive: boolean;
  link: ViewProps["link"];
}

/** The ledger of one parameter as a timeline; nothing where no optimizer holds it or nothing was observed. */
export function ParameterLedger({ model, parameter, arrive, link }: Props) {
  const account = useMemo(() => accountOf(model.doc, parameter), [model, parameter]);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!arrive) return;
    box.current?.scrollIntoView({ block: "start" });
    box.current?.querySelector<HTMLElement>(".chart-scroll")?.focus({ preventScroll: true });
  }, [arrive, parameter]);
  if (account === null) return null;
  const { name } = model.doc.parameters[parameter]!;
  const periods = account.books.flatMap(({ rows }) => rows).reduce((sum, row) => sum + row.periods, 0);
  return (
    <div class="ledger" ref={box}>
      <Panel
        title="Ledger"
        tools={
          <Button
            label="Save the ledger as CSV"
            onClick={() => saveCsv("ledger.csv", CSV_HEAD, csvRows(model, account))}
          >
            CSV
          </Button>
        }
        note={
          <>
            <span class="chart-mono">{name}</span>: what happened to its gradient and its weight from one step of its
            optimizer to the next. Observed {count(periods, "time")}: in the first steps, and in some of the later ones.
          </>
        }
      >
        {account.books.map((book) => (
          <BookTable key={`${book.optimizer.name} ${book.optimizer.made}`} {...{ model, book, name, link }} />
        ))}
        {account.cut > 0 && (
          <p class="chart-note quiet">
            {count(account.cut, "rarer sequence")} of events {account.cut === 1 ? "is" : "are"} not in this page:{" "}
            <code>backprobe show RUN --ledger {name}</code> prints all.
          </p>
        )}
        <Alike model={model} alike={account.alike} link={link} />
        {account.changes.map((one) => (
          <Changes key={one.optimizer} model={model} one={one} name={name} link={link} />
        ))}
        {account.buffers.map((one) => (
          <Buffers key={one.title} model={model} one={one} link={link} />
        ))}
      </Panel>
    </div>
  );
}

/** What one optimizer met: a group of rows for periods in which the same happened, a row for each event. */
function BookTable({ model, book, name, link }: Pick<Props, "model" | "link"> & { book: Book; name: string }) {
  const { optimizer, rows } = book;
  return (
    <>
      <p class="ledger-held">
        Held by <b>{optimizer.name}</b>
        {optimizer.made >= 0 && (
          <>
            , created in <Line model={model} site={optimizer.made} link={link} />
          </>
        )}
        {optimizer.omitted > 0 && (
          <span class="quiet"> ({count(optimizer.omitted, "period")} of its parameters had too many events)</span>
        )}
      </p>
      <div class="chart-scroll" tabIndex={0} role="region" aria-label={`Ledger of ${name} in ${optimizer.name}`}>
        <table>
          <thead>
            <tr>
              <th scope="col">steps</th>
              <th scope="col">what happened</th>
              <th scope="col">line</th>
            </tr>
          </thead>
          {rows.map((row, i) => (
            <Period key={i} {...{ model, row, link }} />
          ))}
        </table>
      </div>
    </>
  );
}

function Period({ model, row, link }: Pick<Props, "model" | "link"> & { row: LedgerRow }) {
  const all = model.doc.ledger!.events;
  const at = (step: number) => (
    <a href={link("steps", { step: String(step) })} aria-label={`step ${step}`}>
      {step.toLocaleString("en-US")}
    </a>
  );
  return (
    <tbody>
      {row.events.map((number, i) => {
        const event = all[number]!;
        return (
          <tr key={i}>
            {i === 0 && (
              <th scope="rowgroup" rowSpan={row.events.length}>
                {row.first === row.last ? (
                  <>step {at(row.first)}</>
                ) : (
                  <>
                    {at(row.first)} to {at(row.last)}
                  </>
                )}
                {often(row) && <span class="quiet">{often(row)}</span>}
              </th>
            )}
            <td>
              <Sign sign={event.sign} />
              <span>{event.text}</span>
              {event.sign === "step" && <Outcome row={row} />}
            </td>
            <td>
              {event.site >= 0 ? <Line model={model} site={event.site} link={link} /> : <Unknown event={event} />}
            </td>
          </tr>
        );
      })}
    </tbody>
  );
}

/** Whether the optimizer's step moved the weight. */
function Outcome({ row }: { row: LedgerRow }) {
  const { text, good } = movement(row);
  return (
    <>
      {text && (
        <span>
          : <b class={good ? "" : "ledger-stayed"}>{text}</b>
        </span>
      )}
      {row.frozen && <span class="quiet"> (requires_grad is off)</span>}
    </>
  );
}

/** Lines of changes by the script are known of recorded steps. */
function Unknown({ event }: { event: LedgerEvent }) {
  return (
    <span
      class="quiet"
      title={`The line of “${event.text}” is not known: its step was not recorded, or several did it.`}
    >
      not known
    </span>
  );
}

/** A sign with a shape of its own for every sort of event; the words beside it say the same. */
function Sign({ sign }: { sign: LedgerEvent["sign"] }) {
  return (
    <svg class={`ledger-sign ledger-${sign}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      {sign === "gradient" && <path d="M6 1 11 10.5H1z" />}
      {sign === "clear" && <circle cx="6" cy="6" r="4.2" />}
      {sign === "write" && <path d="M6 .8 11.2 6 6 11.2 .8 6z" />}
      {sign === "other" && <path d="M2 2h8v8H2z" />}
      {sign === "weight" && <path d="M1.2 1.2 10.8 10.8M10.8 1.2 1.2 10.8" />}
      {sign === "step" && <circle cx="6" cy="6" r="5" />}
    </svg>
  );
}

/** A line of the source, as a link. */
function Line({ model, site, link }: Pick<Props, "model" | "link"> & { site: number }) {
  const { file, line } = model.doc.sites[site]!;
  return (
    <a class="mono" href={link("source", { file, line: String(line) })} title={model.place(site)}>
      <span>{file.length > LONG ? file.replace(/.*[/\\]/, "…/") : file}</span>:{line}
    </a>
  );
}

const CHANGE_HEAD = ["step", "change (of the weight)", "gradient", "momentum", "weight decay", "the rest"];

/** How much steps of one optimizer changed the parameter, and the parts of the change. */
function Changes({ model, one, name, link }: Pick<Props, "model" | "link"> & { one: LedgerChanges; name: string }) {
  const optimizer = model.doc.ledger!.optimizers[one.optimizer]!.name;
  return (
    <>
      <p class="ledger-held">
        How much steps of <b>{optimizer}</b> changed it{one.split ? "" : "; the parts of the change are not known"}
      </p>
      <div
        class="chart-scroll ledger-plain"
        tabIndex={0}
        role="region"
        aria-label={`Changes of ${name} by ${optimizer}`}
      >
        <table>
          <thead>
            <tr>
              {CHANGE_HEAD.slice(0, one.split ? 6 : 2).map((head) => (
                <th key={head} scope="col">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {one.rows.map(([step, ...cells]) => (
              <tr key={step}>
                <td>
                  <a href={link("steps", { step: step! })}>{step}</a>
                </td>
                {cells.slice(0, one.split ? 5 : 1).map((cell, i) => (
                  <td key={i} class={cell.endsWith("not explained") ? "ledger-stayed" : ""}>
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {one.split && (
        <p class="chart-note quiet">
          Norms, and in brackets the share of the change: the shares add up to 100%; a negative one works against it.
        </p>
      )}
    </>
  );
}

/** What changed buffers of the module that holds the parameter. */
function Buffers({ model, one, link }: Pick<Props, "model" | "link"> & { one: LedgerBuffer }) {
  return (
    <>
      <p class="ledger-held">{one.title}</p>
      {one.rows.length > 0 && (
        <div class="chart-scroll ledger-plain" tabIndex={0} role="region" aria-label={one.title}>
          <table>
            <thead>
              <tr>
                <th scope="col">steps</th>
                <th scope="col">times</th>
                <th scope="col">what happened</th>
                <th scope="col">line</th>
              </tr>
            </thead>
            <tbody>
              {one.rows.map(([steps, times, what, site], i) => (
                <tr key={i}>
                  <td>{steps}</td>
                  <td>{times}</td>
                  <td>{what}</td>
                  <td>{site >= 0 && <Line model={model} site={site} link={link} />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

/** The other parameters to which the same happened. */
function Alike({ model, alike, link }: Pick<Props, "model" | "link"> & { alike: readonly number[] }) {
  if (alike.length === 0) return null;
  const names = (some: readonly number[]) =>
    some.map((parameter, i) => (
      <span key={parameter}>
        {i > 0 && ", "}
        <a class="chart-mono" href={link("flow", toLedger(parameter))}>
          {model.doc.parameters[parameter]!.name}
        </a>
      </span>
    ));
  return (
    <div class="ledger-alike">
      The same happened to {count(alike.length, "other parameter")}: {names(alike.slice(0, NAMED))}
      {alike.length > NAMED && (
        <details>
          <summary>{(alike.length - NAMED).toLocaleString("en-US")} more</summary>
          {names(alike.slice(NAMED))}
        </details>
      )}
    </div>
  );
}

const CSV_HEAD = ["optimizer", "first step", "last step", "times", "what happened", "line"];

function csvRows(model: Model, { books }: Account): (string | number)[][] {
  return books.flatMap(({ optimizer, rows }) =>
    rows.flatMap((row) =>
      row.events.map((number) => {
        const { sign, text, site } = model.doc.ledger!.events[number]!;
        const moved = sign === "step" ? movement(row).text : "";
        const what = moved ? `${text}: ${moved}` : text;
        return [optimizer.name, row.first, row.last, row.periods, what, model.place(site)];
      }),
    ),
  );
}
