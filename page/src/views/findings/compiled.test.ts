import { expect, test } from "vitest";
import { events } from "./compiled";

const ROW = {
  name: "forward (train.py:8)",
  site: 0,
  graphs: 1,
  ops: 12,
  backwards: 1,
  cached: 0,
  seconds: 1.5,
  step: 0,
  python: "",
  breaks: [],
  broken: 0,
  again: [],
  recompiled: 0,
};

test("a function that was compiled once has nothing to tell", () => {
  expect(events(ROW)).toEqual([]);
});

test("breaks come with their reason, what is left out is counted, and the last guards are told", () => {
  const row = {
    ...ROW,
    python: "a reason",
    breaks: [{ reason: "call of print", site: 3 }],
    broken: 3,
    again: [{ step: 7, guard: "x.size()[0] == 4", site: 2 }],
    recompiled: 5,
    cached: 1,
  };
  expect(events(row)).toEqual([
    { what: "runs in Python:", why: "a reason", site: -1 },
    { what: "breaks at", why: "call of print", site: 3 },
    { what: "and 2 other breaks", why: "", site: -1 },
    { what: "compiled again 4 times before", why: "", site: -1 },
    { what: "again in step 7, as this did not hold:", why: "x.size()[0] == 4", site: 2 },
    { what: "1 graph read from torch's cache", why: "", site: -1 },
  ]);
});
