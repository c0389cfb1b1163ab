import "./code.css";
import { line, type Start } from "./python";

/** A line of Python in colours. */
export function Code({ text, start = 0 }: { text: string; start?: number }) {
  const { tokens } = line(text, start as Start);
  return (
    <>
      {tokens.map(([kind, part], i) =>
        kind === "plain" ? (
          part
        ) : (
          <span key={i} class={`code-${kind}`}>
            {part}
          </span>
        ),
      )}
    </>
  );
}
