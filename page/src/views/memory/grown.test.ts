import { expect, it } from "vitest";
import { documentOf, stepsOf } from "../../charts/testing";
import { alive, grown, recorded } from "./grown";

const MiB = 2 ** 20;

it("tells a leak: first, last, most, and by how much it grows", () => {
  const steps = stepsOf(20);
  const leak = Float64Array.from({ length: 20 }, (_, i) => (100 + 2 * i) * MiB);
  expect(grown("process", steps, leak)).toBe(
    "process: from 100 MiB in step 0 to 138 MiB in step 19, its most. From step 10 to 19 it grew by 2.00 MiB a step.",
  );
  const flat = leak.map((v, i) => (i === 3 ? 9 * v : 100 * MiB));
  expect(grown("process", steps, flat)).toBe(
    "process: from 100 MiB in step 0 to 100 MiB in step 19; most: 954 MiB in step 3.",
  );
});

it("does not tell one large allocation as growth", () => {
  const steps = stepsOf(40);
  const once = Float64Array.from({ length: 40 }, (_, i) => (i < 30 ? 100 : 500) * MiB);
  expect(grown("process", steps, once)).toBe(
    "process: from 100 MiB in step 0 to 500 MiB in step 39; most: 500 MiB in step 30. It grew by 400 MiB at once, in step 30.",
  );
  const twice = Float64Array.from({ length: 40 }, (_, i) => (i < 25 ? 100 : i < 33 ? 300 : 500) * MiB);
  expect(grown("process", steps, twice)).not.toContain("a step.");
  const cache = Float64Array.from({ length: 40 }, (_, i) => (100 + 2 * Math.min(i, 24)) * MiB);
  expect(grown("process", steps, cache)).not.toContain("a step.");
});

it("says nothing of what is not known", () => {
  const doc = documentOf({ steps: stepsOf(3) });
  expect(recorded(doc)).toBe(false);
  expect(grown("process", doc.steps, doc.steps.resident)).toBe("");
  expect(alive(doc.steps)).toBe("");
  doc.steps.resident[1] = 5 * MiB;
  expect(recorded(doc)).toBe(true);
  expect(grown("process", doc.steps, doc.steps.resident)).toBe("process: 5.00 MiB in step 1.");
});

it("counts the graphs that are alive", () => {
  expect(alive(stepsOf(3, { graphs: Int32Array.of(0, 1, 2) }))).toBe(
    "At least 2 graphs of earlier steps alive when step 2 began.",
  );
  expect(alive(stepsOf(3, { graphs: Int32Array.of(0, 7, 1) }))).toBe(
    "At least 1 graph of earlier steps alive when step 2 began, and at least 7 before.",
  );
});
