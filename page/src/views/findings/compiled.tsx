import type { Compiled as Row } from "../../data/document";
import type { Model } from "../../data/model";
import { count, seconds } from "../../parts/words";
import type { ViewProps } from "../view";

interface Props {
  model: Model;
  link: ViewProps["link"];
}

/** What torch.compile made of functions: a row for each, with where its graph breaks and why it was compiled again. */
export function Compiled({ model, link }: Props) {
  const rows = model.doc.compiled;
  if (rows.length === 0) return null;
  return (
    <section class="findings-compiled" aria-label="What was compiled">
      <h4>What was compiled</h4>
      <div class="findings-scroll" tabIndex={0} role="group" aria-label="Table of compiled functions">
        <table>
          <thead>
            <tr>
              <th scope="col">function</th>
              <th scope="col" class="number">
                graphs
              </th>
              <th scope="col" class="number" title="Operations of the last graph">
                operations
              </th>
              <th scope="col" class="number">
                backwards
              </th>
              <th scope="col" class="number">
                took
              </th>
              <th scope="col">breaks, and what compiled it again</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={`${row.name} ${row.site}`}>
                <td class="mono">
                  <At model={model} link={link} site={row.site} text={row.name} />
                </td>
                <td class="number">{row.graphs}</td>
                <td class="number">{row.ops}</td>
                <td class="number">{row.backwards}</td>
                <td class="number">{seconds(row.seconds)}</td>
                <td>
                  <Events model={model} link={link} row={row} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Events({ model, link, row }: Props & { row: Row }) {
  const parts = events(row);
  if (parts.length === 0) return <span class="quiet">none</span>;
  return (
    <ul>
      {parts.map(({ what, why, site }, i) => (
        <li key={i}>
          {what} {site >= 0 && <At model={model} link={link} site={site} text="" />} <span class="quiet">{why}</span>
        </li>
      ))}
    </ul>
  );
}

/** What happened to a function, in words: why it runs in Python, its breaks, the last times it was compiled again. */
export function events(row: Row): { what: string; why: string; site: number }[] {
  const found: { what: string; why: string; site: number }[] = [];
  if (row.python) found.push({ what: "runs in Python:", why: row.python, site: -1 });
  for (const one of row.breaks) found.push({ what: "breaks at", why: one.reason, site: one.site });
  if (row.broken > row.breaks.length) {
    found.push({ what: `and ${count(row.broken - row.breaks.length, "other break")}`, why: "", site: -1 });
  }
  const before = row.recompiled - row.again.length;
  if (before > 0) found.push({ what: `compiled again ${count(before, "time")} before`, why: "", site: -1 });
  for (const one of row.again) {
    found.push({ what: `again in step ${one.step}, as this did not hold:`, why: one.guard, site: one.site });
  }
  if (row.cached > 0) found.push({ what: `${count(row.cached, "graph")} read from torch's cache`, why: "", site: -1 });
  return found;
}

/** A line of the source, as a link; `text`, or its file and line. */
function At({ model, link, site, text }: Props & { site: number; text: string }) {
  const place = model.doc.sites[site];
  if (place === undefined) return <span>{text || "a line of a library"}</span>;
  return (
    <a class="mono" href={link("source", { file: place.file, line: String(place.line) })}>
      {text || `${place.file}:${place.line}`}
    </a>
  );
}
