"""All thresholds of findings and trackers: the numbers that decide whether and how something is reported.

Each constant says what is compared, in which unit, and why it has its value. A ratio is written as "A over B".
Limits of work, memory and output are in the modules that use them. `tools/thresholds.py` prints the tests that fail
if a threshold is changed: what holds it from above and from below.
"""

from __future__ import annotations

# --- Values that are not finite, and losses that diverge ---

#: A mask with negative infinity covers more than one in this many values; fewer are an accident.
NONFINITE_MASK_RARITY = 20
#: Consecutive steps that a loss scaler may skip while it searches for a scale.
LOSS_SCALER_SEARCH_STEPS = 20
#: Least steps for which a diverging loss is above its usual level. In a linear model it grows for tens of steps; in a
#: deep one it swings for some, and then its exponent doubles from step to step.
DIVERGENCE_MIN_STEPS = 5
#: Last loss of a growth over its first: a loss that diverges grows by at least this factor.
DIVERGENCE_MIN_LOSS_FACTOR = 1e4
#: Absolute loss over its lowest level: a loss counts as grown above this multiple.
LOSS_GROWTH_FACTOR = 10.0
#: The level of a loss is the median of this many losses in a row, so that single losses do not count.
LOSS_LEVEL_STEPS = 5
#: Number of equal stretches of a growth whose medians are recorded; a growth of fewer steps has none.
LOSS_GROWTH_STRETCHES = 5
#: Calls of a scheduler for each step of its optimizer from which on the loop steps it too often: nearly two.
SCHEDULER_MIN_CALLS_PER_STEP = 1.9
#: Learning rate when the loss begins to grow, over the optimizer's first rate: a warm-up ends at the first rate.
LEARNING_RATE_MIN_RAISE = 1.2
#: Factor by which the rate rose in the last third of the steps before the loss grows, or rises while it grows. If it
#: did not, the rate had been high for long and done no harm.
LEARNING_RATE_MIN_LATE_RAISE = 1.1

# --- Gradients that grow or shrink by layer, time or step ---

#: Gradient norm of the first layer over that of the last one, below which the gradient has vanished.
GRADIENT_VANISHED_RATIO = 1e-5
#: Gradient norm of the first layer over that of the last one, above which the gradient has exploded.
GRADIENT_EXPLODED_RATIO = 1e4
#: Geometric mean of the factor per layer, below which the layers themselves shrink the gradient.
GRADIENT_SHRINKS_FACTOR = 0.5
#: Geometric mean of the factor per layer, above which the layers themselves enlarge the gradient.
GRADIENT_GROWS_FACTOR = 1.5
#: Total ratio beyond what training could recover: for time steps, since shrinking is how a recurrent network forgets,
#: and for many layers with a small factor each.
GRADIENT_FORGOTTEN_RATIO = 1e-8
#: Total ratio of many layers that counts as growth whatever the factor per layer.
GRADIENT_VAST_RATIO = 1e5
#: Least share of the layers that are in the named module; layers before a stack do not belong to it.
GRADIENT_TREND_MODULE_SHARE = 0.9
#: Least layers that make a trend; of uses of one weight there have to be twice as many.
GRADIENT_TREND_MIN_LAYERS = 5
#: Least share of the layers whose factor follows the trend.
GRADIENT_TREND_MIN_SHARE = 0.75
#: Steps at the end of a run that are inspected too, and their least number of calls: a trend may begin late.
GRADIENT_TREND_LAST_STEPS = 3
#: Stretches in which the uses of one weight are averaged: through a simulation gradients grow irregularly.
GRADIENT_TREND_STRETCHES = 10
#: Largest gradient of a call over the median of earlier calls, from which on the call is inspected.
GRADIENT_OUTGROWN_FACTOR = 1e3
#: Least earlier calls whose median a call is compared with.
GRADIENT_OUTGROWN_MIN_CALLS = 6
#: Gradient of a parameter over that of the loss and over the median of the other parameters.
GRADIENT_SPIKE_RATIO = 1e6
#: Least factor by which one operation enlarges the gradient to be named as the reason of a spike.
GRADIENT_SPIKE_MIN_OP_FACTOR = 1e5
#: Largest gradient of a step over that of the loss and over the median of other steps.
GRADIENT_SPIKE_SUDDEN_RATIO = 1e5
#: Least other calls whose median shows what is usual; with fewer, no gradient is sudden.
GRADIENT_SPIKE_MIN_OTHER_CALLS = 6
#: Largest norm of a call of a compiled region over the median of earlier calls, above which the call is examined.
REGION_SUDDEN_GROWTH = 1e3
#: Least earlier calls of a compiled region whose median a call is compared with.
REGION_MIN_EARLIER_CALLS = 6
#: Largest gradient of a compiled region over that of its re-execution, and the reverse: beyond this factor the
#: re-execution is another computation.
REGION_MAX_REEXECUTION_RATIO = 4.0

# --- Parameters and units that do not learn ---

#: Recorded steps at the end of a run in which a parameter that learned before does not.
NO_LEARNING_LAST_STEPS = 6
#: Share of the last calls of a parameter that have exact zeros only.
ZERO_GRAD_NEARLY_ALL_SHARE = 0.75
#: The same share, if none of the first calls had zeros only: the parameter learned before.
ZERO_GRAD_HALF_SHARE = 0.5
#: Least recorded steps that show that a loss of zero, which all of the last steps have, gives no gradient.
ZERO_LOSS_MIN_RECORDED_STEPS = 3
#: Least first calls that must be known to say that they had no zeros.
ZERO_GRAD_MIN_FIRST_CALLS = 3
#: Norm of the sum of what several nodes give over the largest of these norms, up to which they cancel: float32 rounds
#: to 1e-7, and an element of a sum of a few terms to several times that.
CANCELLED_MAX_LEFT = 2e-6
#: Gradient of a parameter that learns nothing else, as a share of what is given to the sum that cancels.
CANCELLED_MAX_LEARNED = 1e-4
#: Least calls in which the gradients cancel. All calls have to, from the first on: near a minimum, too, two terms of a
#: loss may cancel.
CANCELLED_MIN_CALLS = 5
#: Gradient of the input of a normalisation over the incoming one, up to which each group holds a single value: those
#: give 1e-5 at most.
SINGLE_VALUE_MAX_INPUT_GRADIENT = 1e-3
#: Gradient of a normalisation's weight over that of its bias: single values give 2e-4 at most, and otherwise both are
#: about equal.
SINGLE_VALUE_MAX_WEIGHT_GRADIENT = 1e-3
#: Largest gradient of a parameter before the normalisation over the gradient that the normalisation gets.
SINGLE_VALUE_MAX_LEARNED = 1e-3
#: Least calls in which a normalisation has single values.
SINGLE_VALUE_MIN_CALLS = 5
#: Share of dead units for a finding: small and wide layers that learn well lose half of theirs.
DEAD_UNITS_MIN_SHARE = 0.6
#: Share of dead units for a warning: two thirds die if another mistake, such as a clip after the step, is the reason.
DEAD_UNITS_WARNING_SHARE = 0.75
#: Share of units for a warning although they never learned: a model that sees a single example has many such units.
DEAD_UNITS_NEVER_LEARNED_SHARE = 0.9
#: Least successive looks at which the gradient of a row was zero, while other rows had one.
ZERO_ROW_MIN_LOOKS = 20
#: Least rows of a weight of which some may be zero and others not.
ZERO_ROW_MIN_ROWS = 2
#: Length of a window of looks as a share of the steps before it: a weight all of whose rows had a gradient in a window
#: is not read any more.
ZERO_ROW_WINDOW_SHARE = 0.25
#: Least steps of a window of looks.
ZERO_ROW_MIN_WINDOW = 16
#: Least calls of a line without a parameter that it reached before.
STOPPED_MIN_MISSING_CALLS = 5
#: Calls of a line without a parameter over its calls before.
STOPPED_MIN_MISSING_SHARE = 0.2
#: Number of calls that suffice if an operation was seen to cut the path.
STOPPED_MIN_CALLS_AFTER_CUT = 30
#: Frequency of a module's calls over that before, above which one part of the script froze the module and another
#: trains it: nearly two.
STOPPED_SHARED_MODULE_RATIO = 1.8
#: Calls without a parameter after which the reason is investigated.
STOPPED_CALLS_BEFORE_INSPECTION = 2
#: Looks at which the units of a layer are equal: noise that makes units differ, such as dropout, does so in each of
#: them.
EQUAL_UNITS_MIN_LOOKS = 4
#: Largest difference between rows over the largest element that rounding causes: sums of equal numbers in another
#: order.
EQUAL_UNITS_TOLERANCE = 1e-4
#: Least calls of a line, all of which give zeros.
SECOND_DERIVATIVE_MIN_CALLS = 2
#: Least arguments of a recurrent operation: an input, a state and weights; other functions that recurrent modules call
#: take fewer.
RECURRENT_OP_MIN_ARGUMENTS = 6
#: Least pairs of successive calls of a recurrent module in one backward call, all without a path between them.
DETACHED_STATE_MIN_PAIRS = 3
#: Least backward calls that have such pairs.
DETACHED_STATE_MIN_BACKWARDS = 2

# --- Gradients between two steps of an optimizer ---

#: Least periods between two steps of an optimizer in which the same events happen to a parameter and its gradient.
LEDGER_MIN_PERIODS = 3
#: Share of these periods among all from the first of them on: this is the rule, and not an exception.
LEDGER_MIN_SHARE = 0.5
#: Least observed periods of an optimizer without any gradient.
UNUSED_GRADIENT_MIN_PERIODS = 8
#: Steps in a row that used gradients of earlier steps again.
REUSED_GRADIENT_MIN_STEPS = 3
#: Steps in a row of an optimizer whose gradients were cleared after backward.
CLEARED_GRADIENT_MIN_STEPS = 4
#: Backward calls after which an optimizer should have stepped.
UNUSED_GRADIENT_MIN_CALLS = 12
#: Share of the parameters that get gradients of the optimizer's own loss which have those of the other one, too: a
#: trunk that two losses share is less.
FOREIGN_GRADIENT_MIN_SHARE = 0.9
#: Updates in a row with gradients that earlier updates have used, from which on a record is made.
HAND_UPDATE_MIN_REUSING = 3
#: Updates that climb, from the first on and without any other, from which on a record is made.
HAND_UPDATE_MIN_CLIMBING = 8
#: Least parameters that climb: a single tensor may be an input that is attacked, or an image.
HAND_UPDATE_MIN_PARAMETERS = 2
#: Backward calls without any update from which on a line that may be meant as one is searched for.
HAND_UPDATE_MIN_QUIET_CALLS = 8
#: Norm of an update less a multiple of the gradient, over the norm of the update, up to which it is that multiple:
#: weight decay is left.
HAND_UPDATE_MAX_REST = 0.1
#: Elements of an update from which on a multiple of the gradient is no accident; with fewer, the factors must be
#: alike, too.
HAND_UPDATE_MIN_ELEMENTS = 8
#: Relative difference of the factors of two updates up to which they are alike.
HAND_UPDATE_MAX_RATE_DIFFERENCE = 0.01
#: Least steps whose losses are known. The first and the last quarter of them are compared.
HAND_UPDATE_MIN_LOSSES = 16
#: Share of pairs of a first and a last loss of which the last is higher, if the loss rises: by chance, four and four
#: losses give that once in 35 times. The growth may be exponential, so means and variances say little.
HAND_UPDATE_MIN_HIGHER_SHARE = 0.9
#: Least steps in which elements moved whose gradient a script sets to zero.
FROZEN_ELEMENT_MIN_LOOKS = 3
#: How often elements that were set to zero may have a gradient at a later look, until the parameter is not examined
#: any more: gradients that are dropped at random, or that are small, are zero elsewhere each time.
FROZEN_ELEMENT_MAX_RELEASES = 3
#: Relative difference up to which an update counts as the decay of the weights alone.
FROZEN_ELEMENT_DECAY_TOLERANCE = 1e-2
#: Norm of an update over that of the weights, from which on it is compared: rounding changes a smaller one by more
#: than the decay's tolerance.
FROZEN_ELEMENT_MIN_UPDATE = 1e-5
#: Calls of a line in a row that clip without effect, or wrongly, from which on a record is made.
CLIPPING_MIN_USELESS_CALLS = 3
#: A call with a bound from here on only measures the norm.
CLIPPING_MEASURING_BOUND = 1e6
#: Least factor of a loss scaler that makes a bound on scaled gradients another one.
CLIPPING_MIN_SCALE = 16.0
#: Bound over the scaler's factor, up to which the bound is not meant for scaled gradients.
CLIPPING_MAX_BOUND_OF_SCALE = 0.1
#: Share of the norm that a bound leaves, up to which the bound is not meant for scaled gradients.
CLIPPING_MAX_REMAINING_SHARE = 0.05
#: Share of the norm of gradients below which a bound leaves next to nothing of them.
CLIPPING_TINY_SHARE = 1e-3
#: Gradient norm over the bound: a run that becomes non-finite after steps beyond this factor does so because nothing
#: was clipped.
CLIPPING_BLOW_UP_FACTOR = 10.0
#: Steps before the first non-finite one that are searched for such gradients.
CLIPPING_STEPS_BEFORE = 8
#: Relative difference of a measured factor from a number of batches: norms of gradients in bfloat16 have eight bits.
DIVIDED_TWICE_FACTOR_TOLERANCE = 0.01
#: Fewest steps of which all calls were examined.
UNDIVIDED_LOSS_MIN_STEPS = 2
#: Weight of the largest term that a loss function averages. Label smoothing leaves 0.9 or less of it; a quarter is
#: left for terms that are weighted with it. Half of it could be a division by two calls.
UNDIVIDED_LOSS_MIN_WEIGHT = 0.75
#: Weight of the largest averaged term, above which the loss is not an average of its elements.
UNDIVIDED_LOSS_MAX_WEIGHT = 1.01
#: Difference from one of the sum of the weights of single elements: what is left is rounding in float32.
UNDIVIDED_LOSS_SUM_TOLERANCE = 1e-4
#: Relative difference of a factor from one divided by the number of calls.
UNDIVIDED_LOSS_FACTOR_TOLERANCE = 0.01
#: Steps of an optimizer with scaled gradients from which on a record is made.
SCALED_GRADIENT_MIN_STEPS = 3
#: Relative difference of norms up to which a weight counts as restored: adding and subtracting the same rounds.
RESTORED_WEIGHT_TOLERANCE = 1e-5
#: Gradient norm after clipping over that before it, below which clipping leaves nothing of a gradient.
CLIPPED_TO_NOTHING_SHARE = 1e-20

# --- Updates, and changes of weights ---

#: Units of relative precision by which rounding moves a weight in a step: two writes and a factor near one.
WEIGHT_CHANGE_ROUNDINGS = 2.0
#: Units of relative precision by which rounding moves the sum of the parts of a change: about ten operations.
CHANGE_PARTS_ROUNDINGS = 8.0
#: Relative error from which on rounding may have any effect: a difference of almost equal numbers may become zero.
CHANGE_MAX_ROUNDING = 0.5
#: Unexplained rest of a change over its largest part, above which it is shown: rounding leaves less.
CHANGE_MIN_REST = 0.001
#: 2-norm of an update over that of its parameter, below which the update is tiny.
TINY_UPDATE_MAX_RATIO = 1e-6
#: Number of the first and of the last measured updates that show whether updates grow.
TINY_UPDATE_COMPARED_LOOKS = 5
#: Least steps of the run, or of the steps after its rate became low.
TINY_UPDATE_MIN_STEPS = 50
#: Least steps in which updates of each parameter were measured. Even on a busy machine they are steps 0, 1, 2, 4, 8,
#: 16, 32 and so on.
TINY_UPDATE_MIN_MEASURED = 7
#: Part of the run, at its end, in which the last measured update must be.
TINY_UPDATE_LAST_PART = 1 / 2
#: Last losses over the first ones: if the loss fell to this share, the model learns, however small its updates are.
TINY_UPDATE_LOSS_FALLEN_SHARE = 0.95
#: Last updates over the first ones: updates that grow by this factor over the run belong to a warm-up.
TINY_UPDATE_WARMUP_GROWTH = 10.0
#: Least measured updates of a parameter, if a schedule made them tiny.
TINY_UPDATE_MIN_MEASURED_OF_SCHEDULE = 5
#: Least steps with tiny updates, if a schedule made them tiny.
TINY_UPDATE_MIN_TINY_STEPS = 30
#: Share of the run in which the rate is low, if a schedule made updates tiny. A cosine that ends at zero has such a
#: rate in the last 2% of it.
TINY_UPDATE_MIN_LOW_SHARE = 1 / 3
#: Last losses over the first ones: a loss that has fallen to this share has converged, and a schedule may have ended
#: by then.
TINY_UPDATE_CONVERGED_SHARE = 0.05
#: Least steps with a gradient in which a parameter was compared, and stayed as it was each time.
ROUNDED_UPDATE_MIN_STEPS = 8
#: Share of elements whose update is rounded away in the median of the measured steps.
ROUNDED_UPDATE_MIN_LOST_SHARE = 0.6
#: Least measured steps whose median counts.
ROUNDED_UPDATE_MIN_MEASURED = 4
#: Least steps that a replacement of the weights loses: after fewer it loses little, as in line searches, unrolled
#: steps and Lookahead.
PUT_BACK_MIN_LOST_STEPS = 10
#: Replacements after fewer steps, beyond which the optimizer is not followed any more.
PUT_BACK_MAX_BRIEF_REPLACEMENTS = 3
#: Least steps that a replacement by an average loses: federated and meta-learning clients take few steps from one
#: average to the next.
PUT_BACK_AVERAGE_MIN_LOST_STEPS = 20
#: Replacements by an average from which on fewer lost steps, as many as without an average, suffice for each.
PUT_BACK_AVERAGE_MANY_REPLACEMENTS = 8
#: Least replacements of an optimizer's weights that each lose enough steps.
PUT_BACK_MIN_REPLACEMENTS = 2
#: Steps of other optimizers between two of one, from which on they may train other clients of a federation.
PUT_BACK_MAX_OTHER_STEPS = 10
#: Relative difference of learning rates up to which the rate is the same: one that is set anew with the weights
#: differs by more.
PUT_BACK_SAME_RATE_TOLERANCE = 0.1
#: Share of the movement that an average undoes: one that undoes less follows the weights.
PUT_BACK_AVERAGE_MIN_SHARE = 0.3
#: Share of the movement that an average undoes: beyond this one the new weights are no average.
PUT_BACK_AVERAGE_MAX_SHARE = 1.05
#: For an average: cosine between the movement of the weights and the part of it that is undone.
PUT_BACK_AVERAGE_MIN_COSINE = 0.5
#: Cosine from which on the weights were moved along the straight line, as interpolation does: 1 less what rounding
#: does.
PUT_BACK_COLLINEAR = 1 - 1e-6
#: Share of the movement that interpolation may undo: it keeps more than the rest, and an average of thousands of steps
#: follows ten of them by as little as that.
PUT_BACK_NEARLY_ALL_SHARE = 0.95
#: Losses before and after a replacement whose medians are compared.
PUT_BACK_COMPARED_LOSSES = 5
#: Cosine between a change and the product from which on the one is a multiple of the other: 16 bits round by 0.4%.
MERGED_UPDATE_MIN_COSINE = 0.95
#: Least number of times that the product was added. Once may be meant: the layer stays merged from then on.
MERGED_UPDATE_MIN_MERGES = 2
#: Number of other changes over that of merges: a product that is subtracted later is another change.
MERGED_UPDATE_MAX_OTHER_SHARE = 0.5

# --- Levels that statistics by layer measure (``--check levels``) ---
# A ratio needs its number of consecutive measurements: Note [Against what a level is held].

#: Measurements before this step are ignored, except for ``weight_gain``.
LEVELS_FIRST_STEP = 10
#: Measurements from ``LEVELS_FIRST_STEP`` on whose median a quantity is compared with.
LEVELS_EARLY_LOOKS = 5
#: Norm of an update over that of its matrix, from which on it is too large.
UPDATE_RATIO_BOUND = 0.1
#: Consecutive measurements with updates that are too large.
UPDATE_RATIO_LOOKS = 5
#: Least update ratio of a matrix that is an outlier among the matrices.
UPDATE_RATIO_OUTLIER_MIN = 0.01
#: Update ratio over that of the median matrix, from which on it is an outlier.
UPDATE_RATIO_OUTLIER_FACTOR = 10.0
#: Least matrices among which one may be an outlier; of those that grow, one less.
OUTLIER_MIN_MATRICES = 4
#: RMS of a matrix over that of the median matrix, below which it started at zero: its update ratios are large for that
#: reason.
STARTED_AT_ZERO_SHARE = 0.1
#: Factor by which the bounds of outliers are larger for the output layer, which grows as the model becomes confident.
OUTPUT_LAYER_FACTOR = 2.0
#: Least logit of attention that is too large.
ATTENTION_LOGIT_BOUND = 40.0
#: Logit of attention over its early value.
ATTENTION_LOGIT_GROWTH = 4.0
#: Consecutive measurements of a logit of attention beyond its bound and its growth.
ATTENTION_LOGIT_LOOKS = 3
#: Least RMS of a layer's output that is too large.
ACTIVATION_RMS_BOUND = 30.0
#: RMS of a layer's output over its early value.
ACTIVATION_RMS_GROWTH = 8.0
#: Consecutive measurements of an output beyond its bound and its growth.
ACTIVATION_RMS_LOOKS = 3
#: Least factor by which a layer multiplies the RMS of its input that is too large.
WEIGHT_GAIN_BOUND = 8.0
#: Factor by which a layer multiplies the RMS of its input over its early value.
WEIGHT_GAIN_GROWTH = 5.0
#: Consecutive measurements of a layer's factor beyond its bound and its growth.
WEIGHT_GAIN_LOOKS = 3
#: Least logit of attention that has grown too fast since the very first measurement.
INITIAL_ATTENTION_LOGIT_BOUND = 40.0
#: Logit of attention over the very first one.
INITIAL_ATTENTION_LOGIT_GROWTH = 10.0
#: Consecutive measurements of a logit of attention beyond its bound and its growth.
INITIAL_ATTENTION_LOGIT_LOOKS = 3
#: Least RMS of a layer's output that has grown too fast since the very first measurement.
INITIAL_ACTIVATION_RMS_BOUND = 8.0
#: RMS of a layer's output over the very first one.
INITIAL_ACTIVATION_RMS_GROWTH = 25.0
#: Consecutive measurements of an output beyond its bound and its growth.
INITIAL_ACTIVATION_RMS_LOOKS = 3
#: Last step at which a growth of the RMS since the very first measurement counts: how a layer changes in its first
#: steps.
INITIAL_ACTIVATION_RMS_LAST_STEP = 200
#: Factor by which a layer multiplies the RMS of its input, before ``LEVELS_FIRST_STEP``.
INITIAL_GAIN_BOUND = 8.0
#: Factor by which a layer multiplies the RMS of its input over that of the median layer.
INITIAL_GAIN_OUTLIER_FACTOR = 5.0
#: Measurements of a layer's factor beyond both of its bounds: there are few before that step.
INITIAL_GAIN_LOOKS = 1
#: Least RMS of a matrix that has grown too large.
MATRIX_GROWTH_MIN_RMS = 0.3
#: RMS of a matrix over its first one.
MATRIX_GROWTH_FACTOR = 4.0
#: Growth of a matrix over that of the median matrix.
MATRIX_GROWTH_OUTLIER_FACTOR = 3.0
#: Consecutive measurements of a matrix beyond its three bounds.
MATRIX_GROWTH_LOOKS = 3
#: Least RMS of the first layer's input that is too large.
INPUT_RMS_BOUND = 1.0
#: RMS of the first layer's input over its early value.
INPUT_RMS_GROWTH = 8.0
#: Consecutive measurements of the input beyond its bound and its growth.
INPUT_RMS_LOOKS = 3
#: Maximum of a half-precision type over the largest activation, below which little room is left.
ACTIVATION_MIN_HEADROOM = 100.0
#: Consecutive measurements with as little room.
ACTIVATION_HEADROOM_LOOKS = 3
#: RMS of gradients over the root of Adam's second moment, for the median parameter.
ADAM_RATIO_BOUND = 5.0
#: Consecutive measurements of Adam's ratio beyond its bound.
ADAM_RATIO_LOOKS = 2
#: Least earlier losses that a loss is compared with.
SPIKE_MIN_LOOKS = 8
#: Number of the latest earlier losses that a loss is compared with.
SPIKE_LATEST_LOOKS = 12
#: Distance of a loss from the median of the earlier ones over their spread.
SPIKE_SPREADS = 6.0
#: Loss over the median of the earlier ones.
SPIKE_FACTOR = 1.5
#: Distance of a loss from the median of the earlier ones over the first loss.
SPIKE_SHARE_OF_FIRST = 0.1
#: Measurements with such a loss: each is a median of several losses.
SPIKE_LOOKS = 1
#: Level of a layer over that of the last measurement, from which on the layer is named with a loss spike.
SPIKE_LAYER_GROWTH = 3.0
#: Loss over the first one, above which it has not fallen much.
LOSS_HIGH_SHARE = 0.6
#: Loss over the first one, above which it has hardly moved.
LOSS_UNMOVED_SHARE = 0.9
#: Share of a layer's units that are zero for the whole batch.
DEAD_SHARE = 0.9
#: Consecutive measurements with as many dead units.
DEAD_LOOKS = 5
#: Share of a layer's units that are at the bounds of their tanh or sigmoid.
SATURATED_SHARE = 0.8
#: Consecutive measurements with as many saturated units.
SATURATED_LOOKS = 5
#: Entropy of attention in nats, up to which it looks at one place.
ATTENTION_ENTROPY_BOUND = 0.05
#: Entropy of attention over its first value, up to which it has collapsed.
ATTENTION_ENTROPY_SHARE = 0.1
#: Least first entropy in nats that can collapse.
ATTENTION_ENTROPY_MIN_FIRST = 0.5
#: Consecutive measurements with a collapsed entropy.
ATTENTION_ENTROPY_LOOKS = 5
#: Stable rank of a matrix up to which it has collapsed while the loss is high: a layer before few outputs may learn
#: one direction first.
STABLE_RANK_BOUND_AT_HIGH_LOSS = 1.3
#: Stable rank of a matrix up to which it has collapsed whatever the loss.
STABLE_RANK_BOUND = 1.05
#: Stable rank of a matrix over its first one, up to which it has collapsed.
STABLE_RANK_SHARE = 0.25
#: Measurements with a collapsed rank, whatever the loss.
STABLE_RANK_LOOKS = 1
#: Consecutive measurements with a collapsed rank while the loss is high.
STABLE_RANK_LOOKS_AT_HIGH_LOSS = 2
#: Update ratio of a matrix below which it hardly moves.
SLOW_UPDATE_RATIO = 1e-5
#: Update ratio of a matrix over that of the median matrix, below which it hardly moves although the loss falls.
SLOW_UPDATE_OUTLIER_SHARE = 0.01
#: Share of elements that an update leaves unchanged, from which on rounding loses it.
UNCHANGED_ELEMENTS_SHARE = 0.95
#: Change of a weight's norm since the last measurement over the norm, up to which it is unchanged.
UNCHANGED_NORM_TOLERANCE = 1e-5
#: Consecutive measurements with updates that are too small, or with attention that looks at one place from the start.
STUCK_LOOKS = 12

# --- Optimizers, learning rates and schedules ---

#: Learning rate over the highest one, up to which it is practically zero.
ZERO_RATE_SHARE = 1e-12
#: Least steps with a rate of zero from which on a record is made.
ZERO_RATE_MIN_STEPS = 20
#: Share of the optimizer's steps that have a rate of zero: schedules that end at zero do so at the end.
ZERO_RATE_MIN_SHARE = 0.3
#: Checks that find a rate of zero after which the scheduler is searched for.
ZERO_RATE_CHECKS_BEFORE_SEARCH = 3
#: Rate over the highest one, below which it is low: three cuts to a tenth.
SCHEDULE_LOW_RATE_SHARE = 1e-3
#: Least steps of an optimizer without a step of its scheduler, or of another optimizer: several batches.
SCHEDULE_MIN_STEPS_WITHOUT = 20
#: Least steps of an optimizer whose scheduler is never stepped, or too rarely: a trial run of a few batches has fewer.
SCHEDULE_MIN_STEPS = 50
#: Least calls of a scheduler while its optimizer does not step: one or two may come before its first step.
SCHEDULE_MIN_IDLE_CALLS = 3
#: Calls over ``T_max``, after which a cosine has turned once; without a loop that counts epochs, it must turn twice.
SCHEDULE_TURN_PERIODS = 2
#: Steps of the optimizer for each of a scheduler that may have been meant to count them: there are several batches in
#: an epoch.
SCHEDULE_MIN_STEPS_PER_CALL = 5
#: Relative difference of the number of steps that a schedule is made for from that of the optimizer's steps.
SCHEDULE_LENGTH_TOLERANCE = 0.02
#: Last rate over the base rate, below which a warm-up has hardly begun: it would take five such runs.
SCHEDULE_MAX_WARMUP_SHARE = 0.2
#: Least calls of a scheduler that show a warm-up that has hardly begun.
SCHEDULE_MIN_WARMUP_CALLS = 3
#: Least metrics that ``ReduceLROnPlateau`` was given.
PLATEAU_MIN_METRICS = 5
#: Share of the metrics up to the best one, if they go in the wrong direction: the best one is among the first.
PLATEAU_EARLY_SHARE = 0.1
#: Change of the metric over its first value, if names show what it is.
PLATEAU_MIN_CHANGE = 0.05
#: Absolute gain of a metric between 0 and 1 that makes it an accuracy, without names.
PLATEAU_MIN_GAIN = 0.2
#: Fall of a metric over its first value that makes it a loss, without names.
PLATEAU_MIN_FALL = 0.3
#: Factor between a metric and the training loss up to which the metric may be a loss.
PLATEAU_LOSS_FACTOR = 2.0
#: Highest rate after a checkpoint was loaded over the loaded rate, from which on it has jumped back; less may be a
#: warm-up that goes on.
RESUMED_RATE_JUMP = 2.0
#: Loaded rate over the first one: above this share it has hardly been under a schedule.
RESUMED_RATE_MAX_SHARE = 0.9
#: Rate that an earlier schedule left over the rate that the script gave, and over the one that the schedule began
#: with: as small as that of a cosine that has ended.
LEFTOVER_RATE_MAX_SHARE = 0.01
#: Least steps with a rate that an earlier schedule left.
LEFTOVER_RATE_MIN_STEPS = 50
#: Optimizers over the same parameters from which on a record is made: phases of a training are fewer.
NEW_OPTIMIZER_MIN_MADE = 8
#: Optimizers that must be seen to find the weights as the last one left them, and to have a state.
NEW_OPTIMIZER_COMPARED = 6
#: Steps of each of the optimizers up to which they count: with more, each may be a training of its own.
NEW_OPTIMIZER_MAX_STEPS = 20
#: Steps of each optimizer up to which it is a warning: its state has hardly any effect. With more, the loss of state
#: does less harm, and each optimizer may solve a problem of its own.
NEW_OPTIMIZER_MAX_STEPS_OF_WARNING = 3

# --- Losses and their targets ---

#: Least backward calls that show a likelihood that falls.
LIKELIHOOD_MIN_CALLS = 6
#: Share of the calls at each end of the run whose values are compared.
LIKELIHOOD_END_SHARE = 0.3
#: First likelihood over that of an untrained model, the negative logarithm of the number of classes: one that begins
#: above this share of it was maximised before, and the model is meant to forget.
LIKELIHOOD_MIN_SHARE_OF_UNTRAINED = 0.5
#: Relative difference of two values up to which they are the same term of a loss.
LOSS_TERM_TOLERANCE = 1e-5
#: Least steps in which both sides of a comparison are equal. At a start, values may be equal once, or twice if the
#: first update has a rate of zero.
CANCELLING_MIN_STEPS = 3
#: Largest relative difference of two sides that were computed in another order.
CANCELLING_TOLERANCE = 1e-5
#: Largest difference of probabilities that ``softmax`` and ``log_softmax`` compute from the same logits.
CANCELLING_PROBABILITY_TOLERANCE = 1e-6
#: Fewest closely inspected steps in which the states and the next states of a loss are equal.
EQUAL_STATES_MIN_STEPS = 2
#: Least rows that are compared. Fewer may be alike by chance.
EMBEDDING_MIN_ROWS = 8
#: Least elements of a row. A normal, a quaternion or a rotation has fewer, and those of a plane are equal.
EMBEDDING_MIN_WIDTH = 8
#: Spread of rows up to which they are called equal: 0.2 is a mean cosine of 0.96 of two rows. The noise of
#: augmentations, which predictors and normalisation of the batch amplify, is left.
EMBEDDING_EQUAL_SPREAD = 0.2
#: The same spread beside other terms of the loss: embeddings may share a large part and be of use.
EMBEDDING_EQUAL_SPREAD_BESIDE_OTHERS = 0.05
#: Last spread over the first one, up to which embeddings have collapsed.
EMBEDDING_MAX_SPREAD_SHARE = 0.25
#: Spread in the inspection before the last over the first one.
EMBEDDING_MAX_SPREAD_SHARE_BEFORE = 0.5
#: Last deviation of the rows over the first one, if lengths count: values may just move away from zero.
EMBEDDING_MAX_DEVIATION_SHARE = 0.1
#: Largest difference of a row's length from 1 if it is normalised.
EMBEDDING_UNIT_TOLERANCE = 1e-3
#: The last looks at a posterior, of which each must show a collapse.
POSTERIOR_LAST_LOOKS = 5
#: Least steps between the first look and the last.
POSTERIOR_MIN_STEPS = 100
#: Divergence of a sample from the prior, in nats, below which its code says nothing of it.
POSTERIOR_MAX_DIVERGENCE = 0.05
#: Divergence of a sample from the prior, in nats, from which on its code says something of it.
POSTERIOR_MIN_CARRIED = 0.5
#: Weight of the divergence over that in the evidence lower bound when the codes are lost, from which on a factor is
#: the reason.
KL_FACTOR_MIN_EXCESS = 1.2
#: Factor over its value when the divergence counted as much as in the evidence lower bound, from which on the factor
#: is the reason.
KL_FACTOR_MIN_GROWTH = 1.5
#: Growth of a factor in the last quarter of the steps, from which on it grows on.
KL_FACTOR_MIN_LATE_GROWTH = 1.02
#: Weight of the divergence over that of the likelihood, from which on the divergence counts for too much: a constant
#: factor of 2 between the usual forms of the reconstruction's error is left, and a beta that people choose.
KL_WEIGHT_MIN_RATIO = 6.0
#: Relative difference of the ratio of weights from the number of elements, if a mean in place of a sum explains it.
KL_WEIGHT_MAX_RATIO_ERROR = 0.5

# --- Tokens, padding and masks ---

#: Least backward calls in which targets have one offset from the tokens; all calls must have it.
TOKEN_TARGETS_MIN_CALLS = 3
#: Least ids of a lookup that are compared.
TOKEN_TARGETS_MIN_IDS = 20
#: Share of targets that are the token at an offset.
TOKEN_TARGETS_MIN_SHARE = 0.99
#: Share of targets that are the next token, above which no other offset is reported.
TOKEN_TARGETS_MAX_NEXT_SHARE = 0.8
#: Least backward calls that show an end mark as padding.
END_MARKS_MIN_CALLS = 3
#: Least rows that show an end mark as padding.
END_MARKS_MIN_ROWS = 12
#: Least calls in which a mask counts the first end mark of each row as a token.
END_MARKS_MIN_MASKED_CALLS = 2
#: Scores at or below it are hidden by a softmax: masks add -10,000, the lowest number of the dtype, or -inf.
MASK_HIDDEN_SCORE = -1e3
#: Least steps in which a mask is inverted.
INVERTED_MASK_MIN_STEPS = 2
#: Least rows with padding and tokens of which a mask hides the tokens.
INVERTED_MASK_MIN_ROWS = 4
#: Least backward calls that looked up the padding row.
PADDING_ROW_MIN_CALLS = 5

# --- Modules: modes, statistics and copies ---

#: Least steps in train mode before a model is left in evaluation mode.
EVALUATION_MODE_MIN_TRAIN_STEPS = 8
#: Least steps in evaluation mode after those in train mode, to the end.
EVALUATION_MODE_MIN_STEPS = 8
#: Least steps of a frozen part in evaluation mode: fewer may be a check of the model before its training.
FROZEN_MODE_MIN_EVALUATION_STEPS = 5
#: Least recorded calls without gradients of a frozen part whose dropout is active.
FROZEN_DROPOUT_MIN_CALLS = 4
#: Least steps of a frozen part in training mode after those in evaluation mode, to the end.
FROZEN_MODE_MIN_TRAINING_STEPS = 20
#: Least pairs of successive looks between which the statistics of a frozen part changed.
FROZEN_MODE_MIN_UPDATES = 4
#: Share of such pairs among all pairs: a part may run in every other step.
FROZEN_MODE_MIN_UPDATED_SHARE = 0.4
#: How often the parameters of a frozen part may change before it counts as something that follows another model.
FROZEN_MODE_MAX_CHANGES_OF_VALUES = 1
#: Standard deviations by which running means moved, from which on the title says so: batches of the same data do less,
#: too.
FROZEN_MODE_MIN_SHOWN_MOVE = 0.2
#: Least steps in which a frozen layer's statistics changed.
FROZEN_STATISTICS_MIN_MOVES = 8
#: Share of all pairs of looks at successive steps between which a frozen layer's statistics changed.
FROZEN_STATISTICS_MIN_MOVING_SHARE = 0.9
#: Batches after which running statistics are those of data, and not of the initialisation.
STATISTICS_MIN_BATCHES = 16
#: Share of the channels of a frozen layer, or of a copy, that are far from what they were, or from the model's.
SHIFTED_CHANNELS_MIN_SHARE = 0.25
#: Standard deviations by which the running means of a frozen part have moved: other batches of the same data move them
#: by less than 0.2.
FROZEN_STATISTICS_MIN_MOVE = 0.5
#: Least number of times that evaluation batches came between training batches: once may be a separate phase.
UNTRAINED_BATCHES_MIN_TURNS = 2
#: How often the weights of a copy, and the statistics of the trained model, changed between two looks.
AVERAGED_COPY_MIN_CHANGES = 3
#: How often a line loads a module's own state until it is reported.
OWN_STATE_MIN_LOADS = 3
#: How often a line loads values that a module has already until it is reported.
UNCHANGED_STATE_MIN_LOADS = 3
#: Steps after which the interpreter shows that a method which each step calls has run.
MODULE_BACKWARD_MIN_STEPS = 20
#: Module calls, and backward calls, after which a hook that never ran counts as idle.
IDLE_HOOK_MIN_CALLS = 3
#: Backward calls before the first search for uncalled modules with hooks.
IDLE_HOOK_CALLS_BEFORE_SEARCH = 4
#: How often a number of hooks has grown, without ever falling.
HOOK_COUNT_MIN_GROWTHS = 3
#: Least hooks of an object that pile up.
HOOK_COUNT_MIN_HOOKS = 4
#: Least steps in which a line compares weights with their own memory: a reference may be copied after the first ones.
ALIASED_REFERENCE_MIN_STEPS = 3

# --- Ranks of a distributed run ---

#: Distance of a rank from the others, in units of the spread, beyond which it is far.
RANK_OUTLIER_SIGMAS = 6.0
#: Least steps that all ranks have, to compare them.
RANK_OUTLIER_MIN_STEPS = 8
#: Least spread of the logarithm of a norm: with a smaller one, ranks with almost equal norms would be far.
RANK_OUTLIER_MIN_SPREAD = 0.2
#: A rank's gradient norm over that of the others, in all steps.
RANK_OUTLIER_MIN_FACTOR = 5.0
#: A rank's gradient norm over that of the others, in a single step.
RANK_OUTLIER_MIN_FACTOR_ONCE = 20.0
#: Part of the run's time in which the others wait for one rank.
SLOW_RANK_MIN_WAIT_SHARE = 0.25
#: Part of the rounds in which one rank is the last.
SLOW_RANK_MIN_LAST_SHARE = 0.9
#: Seconds by which a rank is usually late.
SLOW_RANK_MIN_LATE_S = 0.02
#: Seconds that are lost in all because a rank is late.
SLOW_RANK_MIN_LOST_S = 1.0
#: Least rounds of collectives; the first rounds of each process are warm-up.
SLOW_RANK_MIN_ROUNDS = 16
#: Seconds in one collective after which it counts as a wait.
COLLECTIVE_MIN_WAIT_S = 1.0
#: Seconds after which a wait is reported.
COLLECTIVE_REPORT_AFTER_S = 20.0
#: Share of torch's timeout after which a wait is reported if that is sooner: the report must come before torch ends
#: the process.
COLLECTIVE_REPORT_TIMEOUT_SHARE = 0.4
#: Seconds after which a rank that arrives at a collective counts as late.
RANK_LATE_AFTER_S = 5.0
#: Seconds after which a rank that does not report counts as not answering.
RANK_SILENT_AFTER_S = 15.0
#: Processor usage of a process from which on it counts as computing: a sleeping one uses almost none.
RANK_BUSY_USAGE = 0.1
#: Least earlier steps in which the ranks agreed.
RANKS_MIN_AGREED_STEPS = 2

# --- Memory, compiled regions ---

#: Size of a request over what the step holds, above which the request is the mistake.
OUT_OF_MEMORY_REQUEST_FACTOR = 4
#: Earlier graphs alive, apart from the last step's, after which the holder is searched. Each search multiplies this
#: number by four.
RETAINED_MIN_GRAPHS = 3
#: Backward calls of one step that keep their graph after which the tracker checks whether they add up.
RETAINED_CALLS_BEFORE_CHECK = 8
#: Different steps with recompilations that are reported: varying shapes need two or three.
RECOMPILED_MIN_STEPS = 4

# --- The time of a step ---

#: Largest share of backprobe's own time, an estimate, in a step whose parts are timed: what is left is the step's.
STEP_PHASES_MAX_OWN_SHARE = 0.75
