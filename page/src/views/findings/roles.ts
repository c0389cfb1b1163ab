/** What a source line has to do with a finding, as `backprobe/findings/README.md` has it. */
const MEANINGS: Readonly<Record<string, string>> = {
  cause: "it comes from here",
  held: "this line keeps a graph alive",
  cut: "here the path of the gradient ends",
  mutated: "here a tensor was changed in place",
  saved: "here an operation kept that tensor for backward",
  reused: "here a tensor of the freed graph was used",
  freed: "this backward call freed the graph",
  applied: "here the custom function was applied",
  backward: "here its backward, or a hook, returned or raised",
  optimizer: "here the optimizer was made",
  replaced: "here a parameter or its module was replaced",
  hook: "here the hook was registered",
  region: "here the checkpoint was called",
  waiting: "here a process waits",
  skipping: "here is the process that it waits for",
  branch: "here it may have gone around that",
  stale: "here a hook reads the gradient too early",
  defined: "here it was assigned",
  allocated: "here the memory was asked for",
  failed: "the backward call in which it showed",
  first: "the backward call before it, which reached the same parameters",
};

/** Where a role says something else in findings of one kind. */
const SPECIAL: Readonly<Record<string, string>> = {
  "saved-memory cause": "this line keeps bytes for backward",
  "out-of-memory saved": "what this line saved for backward takes the memory",
  "first-divergence cause": "here the module that differs was assigned",
  "vanishing-gradient cause": "here the gradient gets smaller",
  "exploding-gradient cause": "here the gradient gets greater",
};

export function meaning(role: string, kind: string): string {
  return SPECIAL[`${kind} ${role}`] ?? MEANINGS[role] ?? "";
}
