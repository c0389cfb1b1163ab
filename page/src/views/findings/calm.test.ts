import { expect, test } from "vitest";
import { empty } from "../../testing/document";
import { headline } from "./calm";

test("nothing wrong was found is said only where all was watched to the end", () => {
  const run = { ...empty().run, backwards: 3 };
  const said = [
    run,
    { ...run, live: true, cut: true },
    { ...run, cut: true },
    { ...run, gaps: ["recording stopped at step 2: the disk is full"] },
    { ...run, error: "ValueError: no", gaps: ["a process failed"] },
    { ...run, backwards: 0 },
  ].map(headline);
  expect(said).toEqual([
    "No problems found",
    "No problems found so far",
    "Nothing found before the run was cut off",
    "Nothing found in what was recorded",
    "Nothing found that explains the error",
    "No backward call was seen",
  ]);
});
