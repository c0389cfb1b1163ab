import { Component, type ComponentChildren } from "preact";
import { Sign } from "../parts/severity";

/** A page that has nothing but a message. */
export function Message({ text }: { text: string }) {
  return (
    <main class="frame-message">
      <div role="alert">
        <h1>
          <Sign level="error" /> This page cannot show the run
        </h1>
        <p>{sentence(text)}</p>
      </div>
    </main>
  );
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

interface Props {
  /** What it is that may fail, for the message. */
  title: string;
  children: ComponentChildren;
}

/** Keeps the rest of the page alive when a view fails. */
export class Guard extends Component<Props, { failed: string | null }> {
  override state = { failed: null };

  static getDerivedStateFromError(error: unknown) {
    return { failed: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
  }

  override componentDidCatch(error: unknown) {
    console.error(error);
  }

  override render({ title, children }: Props, { failed }: { failed: string | null }) {
    if (failed === null) return children;
    return (
      <div class="frame-empty" role="alert">
        <h2>The view “{title}” failed</h2>
        <p>The other views still work. This is a defect of the page; please report it with this text:</p>
        <pre>{failed}</pre>
      </div>
    );
  }
}
