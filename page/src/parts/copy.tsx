import { useEffect, useState } from "preact/hooks";
import { copyText } from "./save";

/** A button that puts text on the clipboard and says whether it did. The text is made when it is asked for. */
export function Copy({ label, text, title }: { label: string; text: () => string; title?: string }) {
  const [done, setDone] = useState<string | null>(null);
  useEffect(() => {
    if (done === null) return;
    const timer = setTimeout(() => setDone(null), 1600);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <button
      type="button"
      title={title}
      onClick={async () => setDone((await copyText(text())) ? "Copied" : "The browser refused")}
    >
      <span aria-live="polite">{done ?? label}</span>
    </button>
  );
}
