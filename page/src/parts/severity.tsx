import "./severity.css";
import type { Finding } from "../data/document";

export type Level = Finding["severity"];

export const WORDS: Record<Level, string> = { error: "Error", warning: "Warning", info: "Note" };

/** A sign with a shape of its own for every severity, so that colour is not needed to tell them apart. */
export function Sign({ level }: { level: Level | "good" }) {
  return (
    <svg class={`severity-sign severity-${level}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      {level === "error" && <path d="M5 1h6l4 4v6l-4 4H5l-4-4V5z M5.5 5.5l5 5 M10.5 5.5l-5 5" />}
      {level === "warning" && <path d="M8 1.8 15 14H1z M8 6v4 M8 11.8v.4" />}
      {level === "info" && <path d="M8 1a7 7 0 1 0 .01 0z M8 7v4.4 M8 4.4v.4" />}
      {level === "good" && <path d="M8 1a7 7 0 1 0 .01 0z M4.8 8.2l2.3 2.3 4.2-4.6" />}
    </svg>
  );
}

export function Severity({ level }: { level: Level }) {
  return (
    <span class={`severity severity-${level}`}>
      <Sign level={level} />
      {WORDS[level]}
    </span>
  );
}
