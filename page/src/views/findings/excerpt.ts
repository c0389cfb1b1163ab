import type { Decoded, Finding, Site } from "../../data/document";
import { starts } from "../../parts/python";
import { NOT_KEPT } from "../source/gaps";

/** Some lines of a file with those marked that a finding names. */
export interface Excerpt {
  file: string;
  /** Number of the first line. */
  first: number;
  lines: string[];
  /** In what the lines start; see `parts/python.ts`. */
  starts: Uint8Array;
  /** By number of a line: its roles, and the function that it is in. */
  marks: Map<number, { roles: string[]; function: string }>;
  /** The file that was found is not the one that ran: only the lines that were recorded are shown. */
  changed: boolean;
}

/** Lines shown before and after the main line, and around others. */
const AROUND = 4;
const BESIDE = 2;

/** The excerpts of a finding, the main one first. Lines of a file that are near to each other share one. */
export function excerpts(doc: Pick<Decoded, "sites" | "sources">, finding: Pick<Finding, "sites">): Excerpt[] {
  const found: { file: string; from: number; to: number; marks: Excerpt["marks"]; sites: Site[] }[] = [];
  finding.sites.forEach(({ role, site: number }, i) => {
    const site = doc.sites[number];
    if (site === undefined) return;
    const around = i === 0 ? AROUND : BESIDE;
    const [from, to] = [site.line - around, site.line + around];
    let home = found.find((one) => one.file === site.file && from <= one.to + 2 && to >= one.from - 2);
    if (home === undefined) {
      home = { file: site.file, from, to, marks: new Map(), sites: [] };
      found.push(home);
    }
    home.from = Math.min(home.from, from);
    home.to = Math.max(home.to, to);
    home.sites.push(site);
    const mark = home.marks.get(site.line) ?? { roles: [], function: site.function };
    if (!mark.roles.includes(role)) mark.roles.push(role);
    home.marks.set(site.line, mark);
  });
  return found.flatMap(({ file, from, to, marks, sites }) => {
    const source = doc.sources.find((one) => one.file === file);
    const fits = source !== undefined && sites.every((site) => same(source.lines[site.line - 1], site.text));
    if (!fits) return sites.map((site) => alone(site, marks, source !== undefined));
    let first = Math.max(1, from);
    while (source.lines[first - 1] === NOT_KEPT) first++;
    while (source.lines[to - 1] === NOT_KEPT) to--;
    const lines = source.lines.slice(first - 1, to);
    const all = starts(source.lines.slice(0, to));
    return [{ file, first, lines, starts: all.slice(first - 1), marks, changed: false }];
  });
}

/** Whether a line of a file is the one that was recorded; one that was not recorded fits all. */
function same(line: string | undefined, recorded: string): boolean {
  return line !== undefined && (recorded === "" || line.trim() === recorded.trim());
}

function alone(site: Site, marks: Excerpt["marks"], changed: boolean): Excerpt {
  const mark = marks.get(site.line)!;
  return {
    file: site.file,
    first: site.line,
    lines: [site.text],
    starts: new Uint8Array(1),
    marks: new Map([[site.line, mark]]),
    changed,
  };
}
