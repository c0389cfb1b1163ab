import { Panel } from "../charts/panel";
import { Pair } from "./pair";
import { Mark } from "./verdict";
import type { Props } from "./view";

/** Of many runs, which agree. */
export function Runs({ doc, link }: Props) {
  const name = (run: number) => doc.sides[run]!.name;
  return (
    <>
      <Panel
        title="Which agree"
        note="Runs in one group calculate the same: those on one line have the same bits, the lines of a group differ by rounding. Groups differ from one another."
      >
        <ol class="compare-groups">
          {doc.groups.map((group, i) => (
            <li key={i}>
              {group.bits.map((part, k) => (
                <div key={k}>
                  {k > 0 && <span class="compare-sign">≈ </span>}
                  {part.map((run) => (
                    <code class="compare-run" key={run}>
                      {name(run)}
                    </code>
                  ))}
                  {part.length > 1 && <span class="quiet">the same bits</span>}
                </div>
              ))}
            </li>
          ))}
        </ol>
      </Panel>
      <Panel title={`Each with ${name(0)}`}>
        <div class="compare-wide">
          <table class="compare-table">
            <thead>
              <tr>
                <th scope="col">run</th>
                <th scope="col">verdict</th>
                <th scope="col">the first that differs</th>
              </tr>
            </thead>
            <tbody>
              {doc.comparisons.map((one, k) => {
                const pair = new Pair(one, [doc.sides[0]!, doc.sides[k + 1]!]);
                const first = one.ops.suspect;
                return (
                  <tr key={doc.sides[k + 1]!.name}>
                    <th scope="row">
                      <a href={link("verdict", { with: String(k) })}>{name(k + 1)}</a>
                    </th>
                    <td>
                      <Mark one={one} />
                    </td>
                    <td>
                      {first >= 0 && (
                        <>
                          <code>{pair.title(first)}</code>
                          {pair.module(first) && <span class="quiet"> in {pair.module(first)}</span>}{" "}
                          <span class="quiet">{pair.place(first, pair.which(first))}</span>
                        </>
                      )}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </Panel>
    </>
  );
}
