import "./findings.css";
import { useEffect, useRef } from "preact/hooks";
import type { Finding, Run } from "../../data/document";
import type { Model } from "../../data/model";
import { Copy } from "../../parts/copy";
import { usePrinting } from "../../parts/printing";
import { count } from "../../parts/words";
import type { ViewProps } from "../view";
import { Calm, Verdict } from "./calm";
import { Card, stepOf } from "./card";
import { Course } from "./course";
import { Figures } from "./figures";
import { opened, toggled } from "./opened";
import { asMarkdown, asText } from "./words";

/** The first screen: what went wrong, the most important first, or that nothing did. */
export function Findings({ model, at, set, link, step }: ViewProps) {
  const findings = model.doc.findings;
  const open = opened(at.finding, findings.length);
  const printing = usePrinting();
  const list = useRef<HTMLOListElement>(null);
  const named = at.finding !== undefined && open.length > 0 ? open[0]! : 0;
  useEffect(() => {
    // Somebody followed a link to this finding. The first one is in sight already.
    if (named > 0) list.current?.children[named]?.scrollIntoView({ block: "start" });
  }, []);

  return (
    <div class="findings">
      <Ending model={model} />
      {findings.length === 0 ? (
        <Calm model={model} set={set} link={link} step={step} />
      ) : (
        <>
          <div class="findings-bar">
            <Summary run={model.doc.run} findings={findings} />
            <span class="findings-buttons">
              <Copy
                label="Copy all as text"
                text={() =>
                  asText(
                    model.doc,
                    findings.map((_, i) => i),
                  )
                }
              />
              <Copy
                label="Copy all as Markdown"
                title="For an issue tracker"
                text={() =>
                  asMarkdown(
                    model.doc,
                    findings.map((_, i) => i),
                  )
                }
              />
            </span>
          </div>
          <Course model={model} set={set} step={step} />
          <ol class="findings-list" ref={list}>
            {findings.map((finding, i) => (
              <li key={i}>
                <Card
                  model={model}
                  number={i}
                  finding={finding}
                  open={printing || open.includes(i)}
                  toggle={() =>
                    // What is opened chooses the step of the whole page.
                    set({
                      finding: toggled(open, i),
                      ...(open.includes(i) ? {} : { ...stepOf(model, finding), call: "" }),
                    })
                  }
                  link={link}
                />
              </li>
            ))}
          </ol>
          <Figures model={model} link={link} />
        </>
      )}
    </div>
  );
}

/** "2 findings: 1 error, 1 warning"; notes alone say what their being alone means. */
function Summary({ run, findings }: { run: Run; findings: readonly Finding[] }) {
  if (findings.every((one) => one.severity === "info")) {
    return (
      <h2 class="findings-fine">
        <Verdict run={run} />; {count(findings.length, "note")}
      </h2>
    );
  }
  const of = (severity: string, word: string) => {
    const n = findings.filter((one) => one.severity === severity).length;
    return n > 0 ? [count(n, word)] : [];
  };
  const each = [...of("error", "error"), ...of("warning", "warning"), ...of("info", "note")];
  return (
    <h2>
      {count(findings.length, "finding")}: {each.join(", ")}
    </h2>
  );
}

/** A longer text is cut to two lines until it is opened. */
const LONG = 200;

/** How a run ended that did not end well. */
function Ending({ model }: { model: Model }) {
  const run = model.doc.run;
  const lines: string[] = [];
  if (run.error) lines.push(`The script ended with an error: ${run.error}`);
  if (run.cut && !run.live)
    lines.push(
      "The run was cut off: it ended without saying so, as when it is killed. What was recorded until then is here.",
    );
  if (run.thinned > 0)
    lines.push(`To keep the run small, the nodes of ${count(run.thinned, "step")} were not kept; their norms were.`);
  if (lines.length === 0) return null;
  return (
    <div class="findings-ending" role="note">
      {lines.map((text) => (
        <div key={text}>
          {text.length < LONG ? (
            text
          ) : (
            <details>
              <summary title="Show all of it, or less">{text}</summary>
            </details>
          )}
        </div>
      ))}
    </div>
  );
}
