import "./name.css";
import { ending } from "./names";

/** A name, in a font of one width, in the room that it has: what goes is in the middle, before what `ending` keeps. */
export function Name({ text }: { text: string }) {
  const end = ending(text);
  return (
    <span class="name" title={text}>
      {end.length < text.length && (
        <span class="name-head" style={{ maxWidth: `calc(100% - ${end.length}ch)` }}>
          {text.slice(0, text.length - end.length)}
        </span>
      )}
      {end}
    </span>
  );
}
