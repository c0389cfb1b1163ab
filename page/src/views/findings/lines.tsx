import type { Site } from "../../data/document";
import { Code } from "../../parts/code";
import type { ViewProps } from "../view";
import type { Excerpt } from "./excerpt";

interface Props {
  excerpt: Excerpt;
  /** By role, what a line with it has to do with the finding. */
  meanings: Readonly<Record<string, string>>;
  /** Whether it holds the main line. */
  main: boolean;
  /** A line that is pointed at elsewhere. */
  lit: Site | undefined;
  /** The finding's step, as a part of an address. */
  step: Record<string, string>;
  link: ViewProps["link"];
}

/** Lines of a file; under each that a finding names, what part it plays. */
export function Lines({ excerpt, meanings, main, lit, step, link }: Props) {
  const { file, first, marks } = excerpt;
  const [line, mark] = [...marks][0]!;
  const width = String(first + excerpt.lines.length).length;
  return (
    <figure class="findings-lines">
      <figcaption>
        <a class="mono" href={link("source", { ...step, file, line: String(line) })}>
          {file}:{line}
        </a>
        <span class="quiet">in {mark.function}</span>
      </figcaption>
      <div class="findings-scroll" tabIndex={0} role="group" aria-label={`Lines of ${file}`}>
        <pre>
          {excerpt.lines.map((text, i) => {
            const number = first + i;
            const marked = marks.get(number);
            return (
              <div
                key={number}
                class={[
                  marked ? "findings-marked" : "",
                  marked && main && number === line ? "findings-main" : "",
                  lit?.file === file && lit.line === number ? "findings-lit" : "",
                ].join(" ")}
              >
                <span class="findings-number" style={{ width: `${width}ch` }}>
                  {number}
                </span>
                <span>
                  <Code text={text} start={excerpt.starts[i]} />
                </span>
                {marked?.roles.map((role) => (
                  <div
                    key={role}
                    class="findings-role"
                    style={{ paddingLeft: `min(calc(${width + 2 + indent(text)}ch + 12px), 30%)` }}
                  >
                    <b>▲ {role}</b> {meanings[role]}
                  </div>
                ))}
              </div>
            );
          })}
        </pre>
      </div>
      {excerpt.changed && (
        <p class="findings-changed">This file is no longer as it was when it ran; only the recorded line is shown.</p>
      )}
    </figure>
  );
}

/** Spaces before the first word of a line; a tab counts as the four that it is shown as. */
function indent(text: string): number {
  return /^\s*/.exec(text.replaceAll("\t", "    "))![0].length;
}
