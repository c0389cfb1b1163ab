/** A page that a server shows while the run goes on asks it for news; a page in a file asks nobody. */

/** "on": the server answers; "lost": it does not. */
export type Link = "on" | "lost";

const EVERY = 2000;

export interface Follow {
  token: string;
  /** Version of the document that is shown, "" where none is. */
  version: () => string;
  /** Show a newer document: gzip of its JSON, or of how it has changed. */
  take: (packed: Uint8Array<ArrayBuffer>) => Promise<void>;
  link: (state: Link) => void;
  /** Whether somebody looks at the page. */
  visible: () => boolean;
  ask: (address: string) => Promise<Response>;
  wait: (ms: number) => Promise<void>;
}

/** The token of the server that shows this page, or null in a file. */
export function token(): string | null {
  return document.querySelector<HTMLMetaElement>('meta[name="backprobe-live"]')?.content ?? null;
}

/** Ask once what has changed since the version that is shown, and take it. */
export async function look(follow: Follow): Promise<void> {
  try {
    const query = new URLSearchParams({ token: follow.token, since: follow.version() });
    const answer = await follow.ask(`data?${query}`);
    if (!answer.ok) throw new Error(`data: ${answer.status}`);
    // 204: nothing.
    if (answer.status !== 204) await follow.take(new Uint8Array(await answer.arrayBuffer()));
    follow.link("on");
  } catch {
    follow.link("lost");
  }
}

/** Ask for ever, while somebody looks: for at most a tenth of the time, since a long run is long in reading. */
export async function keepLooking(follow: Follow): Promise<never> {
  for (let wait = EVERY; ; ) {
    await follow.wait(wait);
    const began = performance.now();
    if (follow.visible()) await look(follow);
    wait = Math.max(EVERY, 9 * (performance.now() - began));
  }
}
