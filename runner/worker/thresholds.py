"""Every number by which the judge decides, each with its unit and its reason. ``docs/judging.md`` lists them.

Sizes that no verdict depends on, such as how many elements are looked at in one piece, stand where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Threshold(Generic[N]):
    """A number, of what it is so many, and why it is this one."""

    value: N
    unit: str
    reason: str


ERROR_FACTOR = Threshold(2.0, "times eager's error", "as `torch._dynamo.utils.same` takes it")
ERROR_FACTOR_NARROW = Threshold(
    3.0, "times eager's error", "as `torch._dynamo.utils.same` takes it for half precision and for few elements"
)
FEW_ELEMENTS = Threshold(
    1000, "elements", "a tensor with fewer has `ERROR_FACTOR_NARROW`, as in `torch._dynamo.utils.same`"
)
TYPICAL_FACTOR = Threshold(
    4.0, "times the median of eager's errors", "the largest of a million normal errors is 7.3 times their median"
)
GROSS_FACTOR = Threshold(
    8.0,
    "times the largest error of eager that still counts as right",
    "in small tensors: 0.8 % of the largest element in float32 and 12.5 % in bfloat16, above what approximate"
    " instructions of a GPU are off",
)
STEPS_OF_SMALL = Threshold(
    64.0,
    "distances between the smallest numbers of float16",
    "small tensors of float16 are looked at from here on; other dtypes from their smallest normal number on",
)
ROUNDING_FACTOR = Threshold(
    128.0,
    "times the movement by one rounding",
    "naive sums of n numbers are off by up to half the square root of n times it (N. J. Higham, The Accuracy of"
    " Floating Point Summation, 1993); Inductor on the CPU: 22 for 4,096 numbers, 87 for 40,960, 66 for a million",
)
ROUNDING_FACTOR_NARROW = Threshold(
    4.0,
    "times the movement by one rounding",
    "float16 and bfloat16 are summed in float32 and rounded once an operator: the roundings of 16 operators come to"
    " four by their root mean square",
)
CANCELLED_FACTOR = Threshold(
    8.0,
    "times the movement by one rounding",
    "an error within it may be up to `CANCELLED_PART`: a rounding of a mean of -20000 moves what a layer norm leaves by"
    " 0.05 %; with ten, a result that is a thousandth too large passes where 4096 is added and subtracted",
)
CANCELLED_PART = Threshold(
    2.0**-7,
    "of the largest element",
    "what is off by more is no rounding, however far roundings move it; chosen, not measured",
)
ROUNDING_PART = Threshold(
    2.0**-10,
    "of the largest element",
    "what is off by more is no rounding; in float16 and bfloat16 this is `ROUNDING_FACTOR_NARROW` units roundoff",
)
ROUNDING_DRAWS = Threshold(
    6,
    "draws, each up and down",
    "the root mean square of six is below a tenth of what it should be once in a million times",
)
UNEVEN_PART = Threshold(
    0.25,
    "of the square of the movement",
    "an element that moves to one side by more, whether roundings go up or down, has crossed a step",
)
INPUT_STEPS = Threshold(
    64, "units roundoff", "where no wider run is: far above the run's own rounding, and still small"
)
INPUT_STEPS_NARROW = Threshold(8, "units roundoff", "the same for float16 and bfloat16")
RUN_DISTANCE = Threshold(
    32.0,
    "roundings, by the norms of two results of eager",
    "attention in half precision has other kernels under a mode, with roundings between; another function is"
    " further off",
)
LEGAL_RUNS = Threshold(
    10,
    "runs with other legal choices",
    "the first, the last, and eight at random: an element in the middle of three equal ones stays in all of them once"
    " in 6,561 times",
)
PICK_TURNS = Threshold(
    64,
    "turns of the positions among which an operator picks",
    "over all turns each of some equals is the first; with more positions these runs would take too long",
)
PICK_RUNS = Threshold(
    32,
    "runs at random after these turns",
    "a sum of two picks, of which the turns show three in four values, shows the fourth but once in 10,000 times",
)
KINK_RUNS = Threshold(6, "runs with moved arguments of kinks", "all up, all down, onto the kink, and three at random")
KINK_FACTOR = Threshold(
    16.0, "times what a unit roundoff moves the argument of a kink by", "sums of 10,007 equal numbers were off by one"
)
TRIAL_FACTOR = Threshold(
    8.0,
    "times the uncertainty of an argument",
    "the movement of the result is divided by it: the trial rounds too; chosen, not measured",
)
BEYOND = Threshold(
    4.0,
    "times the range of the legal elements, outside of it",
    "legal runs are few, kinks may be many, and the runs do not reach every legal element",
)
OWN_FACTOR = Threshold(
    2.0, "times the uncertainty of an element", "eager's and the compiled element are both off by it"
)
DECOMPOSITION_FACTOR = Threshold(
    100.0,
    "units roundoff times the size of the matrix",
    "LAPACK's own tests allow 30 (`TESTING/nep.in`), and what is decomposed was computed in another order",
)
EIGENVALUE_FACTOR = Threshold(
    10,
    "times `DECOMPOSITION_FACTOR`",
    "eigenvalues of a matrix without symmetry move further than it does; chosen, not measured",
)
NOISE_PART = Threshold(
    0.5,
    "of the largest element",
    "eager's error against float64 where the numbers are nothing but rounding; chosen, not measured",
)
LEAST_NARROWED = Threshold(
    2.0**-32,
    "of an element of float64",
    "a compiled element that is off by more, and a number of float32 as all others, was rounded to it: float64's own"
    " roundings are a million times smaller, and a rounding to float32 is 2**-25 on average",
)
MOST_NARROWED = Threshold(
    2.0**-20,
    "of an element of float64",
    "what is off by more is no rounding to float32: it is what is left of larger numbers",
)
SCALE_PART = Threshold(
    1e-5, "of a quantizer's scale", "a scale may be computed, and is then rounded; chosen, not measured"
)
MOST_PAIRS = Threshold(
    1 << 24, "elements", "no larger intermediate is made for another choice, and no larger overlap is looked for"
)
TWIN_TIME = Threshold(
    2.0,
    "times what the backend took",
    "a twin is begun if so much time is left: it is compiled and judged too",
)
