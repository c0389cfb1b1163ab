import { Name } from "../../parts/name";
import { middle } from "../../parts/names";
import { label, type Shown, shown } from "./evidence";

/** Entries and rows that are shown before the rest is folded. */
const FEW = 8;

export function Evidence({ value }: { value: Record<string, unknown> }) {
  return <Pairs pairs={Object.entries(value).map(([key, one]) => [label(key), shown(one, 1, key)])} />;
}

function Pairs({ pairs }: { pairs: [string, Shown][] }) {
  if (pairs.length === 0) return <>none</>;
  return (
    <dl class="findings-pairs">
      {pairs.map(([key, one]) => (
        <div key={key} class={one.kind === "table" || one.kind === "pairs" ? "findings-wide" : ""}>
          <dt>{key}</dt>
          <dd>
            <Value shown={one} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Value({ shown: value }: { shown: Shown }) {
  switch (value.kind) {
    case "text":
      return <span class="findings-value">{value.text}</span>;
    case "pairs":
      return <Pairs pairs={value.pairs} />;
    case "list":
      return <List items={value.items} />;
    case "table":
      return <Rows {...value} />;
  }
}

function List({ items }: { items: string[] }) {
  const join = (some: string[]) => <span class="findings-value">{some.join(", ")}</span>;
  if (items.length <= FEW) return join(items);
  return (
    <>
      {join(items.slice(0, FEW))}
      <details>
        <summary>{(items.length - FEW).toLocaleString("en-US")} more</summary>
        {join(items.slice(FEW))}
      </details>
    </>
  );
}

function Rows({ columns, rows, sizes = [] }: { columns: string[]; rows: string[][]; sizes?: (number[] | null)[] }) {
  const body = (some: string[][], head: boolean, from: number) => (
    <table>
      {head && (
        <thead>
          <tr>
            {columns.map((one) => (
              <th key={one} scope="col">
                {one}
              </th>
            ))}
          </tr>
        </thead>
      )}
      <tbody>
        {some.map((row, i) => (
          <tr key={i}>
            {row.map((cell, k) => (
              <td key={k} class={sizes[k] ? "findings-sized" : ""} title={cell}>
                {sizes[k] && <i style={{ width: `${100 * sizes[k][from + i]!}px` }} />}
                {/[\s,]/.test(cell) ? <span>{middle(cell, 44)}</span> : <Name text={cell} />}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
  return (
    <div class="findings-rows">
      {body(rows.slice(0, FEW), true, 0)}
      {rows.length > FEW && (
        <details>
          <summary>{(rows.length - FEW).toLocaleString("en-US")} more</summary>
          {body(rows.slice(FEW), true, FEW)}
        </details>
      )}
    </div>
  );
}
