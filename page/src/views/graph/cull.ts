import { curve, type Inner, type Spot, type Wire } from "./layout";

/** Where a picture is looked at: screen = picture * k + (x, y). */
export interface Eye {
  x: number;
  y: number;
  k: number;
}

export interface Region {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export interface Drawn {
  frames: (Spot & { left: number; top: number })[];
  boxes: (Spot & { left: number; top: number })[];
  wires: { group: number; wire: Wire; path: string; middle: { x: number; y: number } }[];
  /** Boxes that are in the region and not drawn, because there are too many. */
  more: number;
}

/** No more than this is drawn at once. */
export const MOST_DRAWN = 400;
/** An open group that is narrower than this on the screen is drawn closed. */
const TINY = 40;

/** The region that is on a screen of this size, with a margin so that a small move needs no new drawing. */
export function region(eye: Eye, width: number, height: number, margin: number): Region {
  return {
    left: (-eye.x - margin * width) / eye.k,
    top: (-eye.y - margin * height) / eye.k,
    right: ((1 + margin) * width - eye.x) / eye.k,
    bottom: ((1 + margin) * height - eye.y) / eye.k,
  };
}

/** What of a picture is to be drawn: what is in the region and large enough to be seen. */
export function drawn(picture: Inner, seen: Region, k: number): Drawn {
  const out: Drawn = { frames: [], boxes: [], wires: [], more: 0 };
  const stack = [{ inner: picture, x: 0, y: 0 }];
  while (stack.length) {
    const { inner, x, y } = stack.pop()!;
    for (const wire of inner.wires) {
      if (!meets(wire.points, x, y, seen) || out.wires.length >= 2 * MOST_DRAWN) continue;
      const half = wire.points[wire.points.length >> 1]!;
      out.wires.push({
        group: inner.group,
        wire,
        path: curve(wire.points, x, y),
        middle: { x: x + half.x, y: y + half.y },
      });
    }
    for (const spot of inner.spots) {
      const [left, top] = [x + spot.x, y + spot.y];
      if (left > seen.right || top > seen.bottom || left + spot.width < seen.left || top + spot.height < seen.top)
        continue;
      if (spot.inner && spot.width * k >= TINY) {
        out.frames.push({ ...spot, left, top });
        stack.push({ inner: spot.inner, x: left, y: top });
      } else if (out.boxes.length < MOST_DRAWN) out.boxes.push({ ...spot, left, top });
      else out.more++;
    }
  }
  return out;
}

function meets(points: readonly { x: number; y: number }[], x: number, y: number, seen: Region): boolean {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const point of points) {
    left = Math.min(left, point.x);
    right = Math.max(right, point.x);
    top = Math.min(top, point.y);
    bottom = Math.max(bottom, point.y);
  }
  return left + x <= seen.right && right + x >= seen.left && top + y <= seen.bottom && bottom + y >= seen.top;
}

/** Where a box is in a picture; null where it is not shown. `chain` are the groups around it, outermost first. */
export function find(
  picture: Inner,
  chain: readonly number[],
  box: number,
): (Spot & { left: number; top: number }) | null {
  let inner: Inner | null = picture;
  let [x, y] = [0, 0];
  for (const id of [...chain, box]) {
    const spot: Spot | undefined = inner?.spots.find((one) => one.box === id);
    if (!spot) return null;
    [x, y] = [x + spot.x, y + spot.y];
    if (id === box) return { ...spot, left: x, top: y };
    inner = spot.inner;
  }
  return null;
}

/** An eye that sees all of a picture, or as much as can be read of it, from the top. */
export function fitted(picture: { width: number; height: number }, width: number, height: number): Eye {
  const pad = 24;
  const whole = Math.min((width - 2 * pad) / picture.width, (height - 2 * pad) / picture.height);
  const k = Math.min(1.1, Math.max(whole, Math.min(0.85, (width - 2 * pad) / picture.width), 0.05));
  const y = picture.height * k <= height - 2 * pad ? (height - picture.height * k) / 2 : pad;
  return { k, x: (width - picture.width * k) / 2, y };
}
