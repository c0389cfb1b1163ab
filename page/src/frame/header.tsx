import { useState } from "preact/hooks";
import type { Run } from "../data/document";
import { count, seconds } from "../parts/words";
import { Gaps } from "./gaps";
import type { Link } from "./live";
import { choose, chosen, following, type Theme } from "./theme";

interface Props {
  run: Run;
  /** What the server says that shows the page; null in a file. */
  link: Link | null;
  /** Opens what lies over the page. */
  over: (what: "help" | "search") => void;
  themed: () => void;
}

export function Header({ run, link, over, themed }: Props) {
  const command = [run.script, ...run.arguments].filter(Boolean).join(" ");
  return (
    <header class="frame-header">
      <div class="frame-run">
        <span class="frame-brand">backprobe</span>
        <h1 title={run.name}>{run.name}</h1>
        <State run={run} link={link} />
      </div>
      <div class="frame-buttons">
        <button type="button" onClick={() => over("search")} aria-label="Search" title="Search (/)">
          <span aria-hidden="true">⌕</span> <span class="frame-word">Search</span>
        </button>
        <ThemeButton themed={themed} />
        <button type="button" class="frame-help-button" onClick={() => over("help")} aria-label="Keys" title="Keys (?)">
          ?
        </button>
      </div>
      <p class="frame-facts">
        {command && command !== run.name && (
          <code class="frame-command" title={command}>
            {command}
          </code>
        )}
        <span class="frame-figures">
          {facts(run).map((fact) => (
            <span key={fact}>{fact}</span>
          ))}
        </span>
      </p>
      <Gaps run={run} />
    </header>
  );
}

/** The run in a few words. */
export function facts(run: Run): string[] {
  const found = [count(run.steps, "step"), count(run.backwards, "backward call")];
  if (run.seconds !== null) found.push(seconds(Number(run.seconds)));
  if (run.torch) found.push(`torch ${run.torch}`);
  if (run.started !== null) found.push(new Date(1000 * Number(run.started)).toLocaleString());
  return found;
}

function State({ run, link }: Pick<Props, "run" | "link">) {
  return (
    <span class="frame-state" role="status">
      {link === "lost" && (
        <span class="frame-sign frame-warn" title="The server does not answer; what is shown stays">
          ○ no connection
        </span>
      )}
      {link === "on" && run.live && (
        <span class="frame-sign frame-good" title="New steps appear by themselves">
          ● live
        </span>
      )}
      {link === null && run.live && (
        <span class="frame-sign frame-warn" title="The run was going on when this was written">
          ◐ not finished
        </span>
      )}
      {run.cut && !run.live && (
        <span class="frame-sign frame-warn" title="The run ended without saying so: it was killed">
          ▲ cut off
        </span>
      )}
      {run.error && (
        <span class="frame-sign frame-bad" title={run.error}>
          ✕ ended with an error
        </span>
      )}
    </span>
  );
}

const SIGNS: Record<Theme, string> = { auto: "◐", light: "☼", dark: "☾" };

export function ThemeButton({ themed }: { themed: () => void }) {
  const [theme, setTheme] = useState(chosen);
  const next = following(theme);
  return (
    <button
      type="button"
      aria-label={`Theme: ${theme}; change to ${next}`}
      title={`Theme: ${theme}; change to ${next}`}
      onClick={() => {
        choose(next);
        setTheme(next);
        themed();
      }}
    >
      <span aria-hidden="true">{SIGNS[theme]}</span> {theme}
    </button>
  );
}
