import type { Decoded, Finding } from "../../data/document";

/** Findings as text for a message, or as Markdown for an issue tracker. */

type Doc = Pick<Decoded, "findings" | "sites" | "run">;

/** What a finding is about, a name and a value each. */
export function facts(finding: Finding): [string, string][] {
  const all: [string, string | null][] = [
    ["module", finding.module],
    ["node", finding.node],
    ["tensor", finding.tensor],
    ["parameters", finding.parameters.join(", ")],
    ["step", finding.step === null ? null : String(finding.step)],
    ["rank", finding.rank === null ? null : String(finding.rank)],
  ];
  return all.filter((fact): fact is [string, string] => fact[1] !== null && fact[1] !== "");
}

export function asText(doc: Doc, numbers: readonly number[]): string {
  return `${numbers.map((number) => textOf(doc, number)).join("\n\n")}\n\n${made(doc)}\n`;
}

function textOf(doc: Doc, number: number): string {
  const finding = doc.findings[number]!;
  const lines = [`${number + 1}. ${finding.kind}  (${finding.severity}, ${finding.confidence})`, `   ${finding.title}`];
  const pairs: [string, string][] = facts(finding);
  for (const { role, site } of finding.sites) {
    const at = doc.sites[site];
    if (at === undefined) continue;
    pairs.push([role, `${at.file}:${at.line} in ${at.function}`]);
    if (at.text !== "") pairs.push(["", `  ${at.text.trim()}`]);
  }
  const width = Math.max(0, ...pairs.map(([name]) => name.length));
  for (const [name, value] of pairs) lines.push(`   ${name.padEnd(width)}  ${value}`.trimEnd());
  if (finding.advice !== "") lines.push(`   ${finding.advice}`);
  for (const [key, value] of Object.entries(finding.evidence)) lines.push(`   ${key}: ${JSON.stringify(value)}`);
  return lines.join("\n");
}

export function asMarkdown(doc: Doc, numbers: readonly number[]): string {
  return `${numbers.map((number) => markdownOf(doc, number)).join("\n\n")}\n\n${plain(made(doc))}\n`;
}

function markdownOf(doc: Doc, number: number): string {
  const finding = doc.findings[number]!;
  const parts = [
    `### ${number + 1}. ${span(finding.kind)} (${finding.severity}, ${finding.confidence})`,
    plain(finding.title),
  ];
  const about = facts(finding)
    .filter(([name]) => name !== "parameters")
    .map(([name, value]) => `- ${name}: ${span(value)}`);
  if (finding.parameters.length > 0) about.push(`- parameters: ${finding.parameters.map(span).join(", ")}`);
  if (about.length > 0) parts.push(about.join("\n"));
  for (const { role, site } of finding.sites) {
    const at = doc.sites[site];
    if (at === undefined) continue;
    parts.push(`**${plain(role)}**: ${span(`${at.file}:${at.line}`)} in ${span(at.function)}`);
    if (at.text !== "") parts.push(fence(at.text.trim(), "python"));
  }
  if (finding.advice !== "") parts.push(`**What to do:** ${plain(finding.advice)}`);
  if (Object.keys(finding.evidence).length > 0) {
    parts.push(
      `<details><summary>Evidence</summary>\n\n${fence(JSON.stringify(finding.evidence, null, 1), "json")}\n\n</details>`,
    );
  }
  return parts.join("\n\n");
}

/** Where it was found. */
function made({ run }: Doc): string {
  const command = [run.script, ...run.arguments].filter(Boolean).join(" ");
  const with_ = [
    run.backprobe && `backprobe ${run.backprobe}`,
    run.torch && `torch ${run.torch}`,
    run.python && `Python ${run.python}`,
  ];
  return [`Run ${run.name}`, command, ...with_].filter(Boolean).join(", ");
}

/** Text that Markdown leaves as it is, on one line. */
export function plain(text: string): string {
  return text.replace(/\s*[\r\n]+\s*/g, " ").replace(/[\\`*_[\]<>&~|$#]/g, "\\$&");
}

/** Text as code inside a line: the quotes are longer than any in it. */
export function span(text: string): string {
  const inside = text.replace(/[\r\n]+/g, " ");
  const ticks = "`".repeat(longest(inside) + 1);
  const edge = /^`|`$|^ .*[^ ].* $/.test(inside) ? " " : "";
  return inside.trim() === "" ? "` `" : `${ticks}${edge}${inside}${edge}${ticks}`;
}

/** Text as a block of code. */
export function fence(text: string, language: string): string {
  const ticks = "`".repeat(Math.max(3, longest(text) + 1));
  return `${ticks}${language}\n${text}\n${ticks}`;
}

function longest(text: string): number {
  return Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length));
}
