// Exponentials of whole vectors, exact to about two units in the last place.

#pragma once

#include "dense.h"

typedef std::conditional_t<sizeof(Real) == 4, int32_t, int64_t> Whole;
typedef Whole WholeVector __attribute__((vector_size(kVectorBytes), may_alias));

// exp(x) for x up to 88 (double: 709). It is 0 where it would be below the smallest normal number; NaN stays NaN.
//
// exp(x) = 2^n exp(r), |r| <= log(2) / 2: adding `shift` rounds x / log(2) to n and leaves n in the lowest bits.
NBL_INLINE Vector exp_of(Vector x) {
    constexpr bool is_float = sizeof(Real) == 4;
    constexpr Real least = is_float ? -87.33 : -708.39, shift = is_float ? 0x1.8p23 : 0x1.8p52;
    constexpr Real ln2_high = is_float ? 0.693359375 : 6.93147180369123816490e-01;  // few digits: n * ln2_high is exact
    constexpr Real ln2_low = is_float ? -2.12194440054690581e-4 : 1.90821492927058770002e-10;
    constexpr int order = is_float ? 7 : 13, mantissa = is_float ? 23 : 52;
    const Vector shifted = x * Real(1.44269504088896340736) + shift;
    const Vector n = shifted - shift;
    const Vector r = (x - n * ln2_high) - n * ln2_low;
    Real inverse_factorial[order + 1] = {1};
    for (int k = 1; k <= order; k++) inverse_factorial[k] = inverse_factorial[k - 1] / k;
    Vector sum = Vector{} + inverse_factorial[order];
    each<order>([&](int k) { sum = sum * r + inverse_factorial[order - 1 - k]; });
    const WholeVector scaled = (WholeVector)sum + ((WholeVector)shifted << mantissa);
    return x < least ? Vector{} : (Vector)scaled;
}
