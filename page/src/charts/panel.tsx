import "./charts.css";
import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  /** A sentence under the title. */
  note?: ComponentChildren;
  /** Controls beside the title. */
  tools?: ComponentChildren;
  children: ComponentChildren;
}

/** A chart or a table with its title, its controls and what can be saved of it. */
export function Panel({ title, note, tools, children }: Props) {
  return (
    <section class="chart-panel" aria-label={title}>
      <header class="chart-head">
        <h2>{title}</h2>
        {tools && <div class="chart-tools">{tools}</div>}
      </header>
      {note && <p class="chart-note quiet">{note}</p>}
      {children}
    </section>
  );
}

export function Button({
  onClick,
  label,
  children,
  disabled,
}: {
  onClick: () => void;
  label?: string;
  children: ComponentChildren;
  disabled?: boolean;
}) {
  return (
    <button
      type="button"
      class="chart-button"
      onClick={onClick}
      disabled={disabled ?? false}
      {...(label ? { "aria-label": label, title: label } : {})}
    >
      {children}
    </button>
  );
}

/** One of a few, as a row of buttons. */
export function Choice({
  label,
  options,
  value,
  onChange,
}: {
  label: string;
  options: readonly (readonly [string, string])[];
  value: string;
  onChange: (value: string) => void;
}) {
  return (
    <div class="chart-choice" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button type="button" key={key} aria-pressed={key === value} onClick={() => onChange(key)}>
          {text}
        </button>
      ))}
    </div>
  );
}

/** A sign and a word for each series. */
export function Legend({
  items,
}: {
  items: readonly { name: string; colour: string; sign?: string; dash?: readonly number[] }[];
}) {
  return (
    <ul class="chart-legend">
      {items.map(({ name, colour, sign, dash }) => (
        <li key={name}>
          {sign ? (
            <span aria-hidden="true" style={{ color: colour }}>
              {sign}
            </span>
          ) : (
            <svg width="18" height="8" aria-hidden="true">
              <line
                x1="0"
                x2="18"
                y1="4"
                y2="4"
                stroke={colour}
                stroke-width="2"
                stroke-dasharray={dash?.join(" ") ?? ""}
              />
            </svg>
          )}
          {name}
        </li>
      ))}
    </ul>
  );
}
