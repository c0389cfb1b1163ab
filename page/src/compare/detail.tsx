import { useMemo } from "preact/hooks";
import { norm } from "../parts/words";
import { marked, type Pair, SIDES, type Which } from "./pair";
import { apart, State } from "./state";
import type { Props } from "./view";

const TAKERS = 8;

/** One operation on both sides: what it was called with, what it took and gave, and who took that. */
export function OpDetail({
  pair,
  row,
  link,
  close,
}: {
  pair: Pair;
  row: number;
  link: Props["link"];
  close: () => void;
}) {
  const { state, distance, exact } = pair.doc.ops;
  const takers = useMemo(() => pair.takers(row), [pair, row]);
  const module = pair.module(row);
  return (
    <section class="compare-detail" aria-label="The operation">
      <header>
        <h3>
          <code>{pair.title(row)}</code>
        </h3>
        <button type="button" onClick={close} aria-label="Close">
          ✕
        </button>
      </header>
      <p class="quiet">
        {pair.phase(row)} of step {pair.step(row)}, {module ? <code>{module}</code> : "(model)"}
      </p>
      <p>
        <State pair={pair} state={state[row]!} />
        {distance[row]! > 0 && <>, {apart(distance[row]!)} apart</>}
        {exact[row]! > 0 && state[row] === 2 && <>, {apart(exact[row]!)} in float64 from the same tensors</>}
      </p>
      <dl>
        {SIDES.map((side) => (
          <Side key={side} pair={pair} row={row} side={side} />
        ))}
      </dl>
      <Tensors pair={pair} row={row} kind={0} title="What it took" link={link} />
      <Tensors pair={pair} row={row} kind={1} title="What it gave" link={link} />
      {takers.length > 0 && (
        <>
          <h4>Who took that</h4>
          <ul>
            {takers.slice(0, TAKERS).map((one) => (
              <li key={one}>
                <a href={link("ops", { row: String(one) })}>{pair.title(one)}</a>{" "}
                <span class="quiet">{pair.module(one)}</span> <State pair={pair} state={state[one]!} />
              </li>
            ))}
            {takers.length > TAKERS && <li class="quiet">and {takers.length - TAKERS} more</li>}
          </ul>
        </>
      )}
    </section>
  );
}

function Side({ pair, row, side }: { pair: Pair; row: number; side: Which }) {
  const letter = side.toUpperCase();
  if (!pair.has(row, side)) {
    return (
      <div>
        <dt class="compare-letter">{letter}</dt>
        <dd>has no such operation</dd>
      </div>
    );
  }
  const other: Which = side === "a" ? "b" : "a";
  const site = pair.site(row, side, "inner") ?? pair.site(row, side);
  const node = pair.text(row, side, "node");
  const cut = (what: "name" | "arguments") =>
    marked(pair.text(row, side, what), pair.has(row, other) ? pair.text(row, other, what) : pair.text(row, side, what));
  const show = (parts: [string, boolean][]) =>
    parts.map(([text, off], i) => (off ? <mark key={i}>{text}</mark> : text));
  return (
    <div>
      <dt class="compare-letter">{letter}</dt>
      <dd>
        <code>
          {show(cut("name"))}
          {show(cut("arguments"))}
        </code>
        {site !== null && (
          <p>
            <span class="quiet">{pair.place(row, side)}</span> <code>{site.text}</code>
          </p>
        )}
        {node && <p class="quiet">run by {node}</p>}
      </dd>
    </div>
  );
}

function Tensors({
  pair,
  row,
  kind,
  title,
  link,
}: {
  pair: Pair;
  row: number;
  kind: number;
  title: string;
  link: Props["link"];
}) {
  const all = pair.tensors(row, kind);
  if (all.length === 0) return null;
  const { columns } = pair;
  return (
    <>
      <h4>{title}</h4>
      <div class="compare-wide">
        <table class="compare-table">
          <thead>
            <tr>
              <th scope="col">tensor</th>
              <th scope="col">A</th>
              <th scope="col">B</th>
              <th scope="col">state</th>
            </tr>
          </thead>
          <tbody>
            {all.map((at, n) => (
              <tr key={at}>
                <td>
                  {n}
                  <From pair={pair} at={at} link={link} />
                </td>
                {SIDES.map((side) => (
                  <td key={side}>
                    <Value pair={pair} at={at} side={side} />
                  </td>
                ))}
                <td>
                  <State pair={pair} state={columns.state[at]!} />
                  {columns.distance[at]! > 0 && <div class="quiet">{apart(columns.distance[at]!)} apart</div>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** What a tensor is, or the operation that gave it. */
function From({ pair, at, link }: { pair: Pair; at: number; link: Props["link"] }) {
  const { a, b, kind } = pair.columns;
  if (kind[at] === 1) return null;
  const from = a.from[at]! >= 0 ? a.from[at]! : b.from[at]!;
  const name = pair.string(a.name[at]) || pair.string(b.name[at]);
  return (
    <div>
      {name && <code>{name}</code>}
      {from >= 0 ? (
        <a href={link("ops", { row: String(from) })}>
          {name && " "}
          from {pair.title(from)}
        </a>
      ) : (
        !name && <span class="quiet">from outside</span>
      )}
    </div>
  );
}

function Value({ pair, at, side }: { pair: Pair; at: number; side: Which }) {
  const of = pair.columns[side];
  if (of.word[at]! < 0) return <span class="quiet">–</span>;
  return (
    <>
      <span class="mono">{pair.string(of.word[at])}</span>
      <div class="quiet">
        {of.bad[at]! > 0 ? `${of.bad[at]!.toLocaleString("en-US")} not finite` : `norm ${norm(of.norm[at])}`}
      </div>
    </>
  );
}
