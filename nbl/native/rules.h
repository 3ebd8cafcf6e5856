// What pcfg.cpp and rank.cpp share: tables of probabilities from log-probabilities, bounded gradients.

#pragma once

#include "lanes.h"
#include "scaled_chart.h"

#include <cmath>
#include <initializer_list>

typedef Real LooseVector __attribute__((vector_size(kVectorBytes), may_alias, aligned(sizeof(Real))));

// Memory that outlives a call, laid out as scratch memory is
struct Memory : Scratch {
    explicit Memory(Real* memory) : Scratch(memory) {}
    using Scratch::take;
};

inline void bound(Real* x, size_t n, Real factor = 1) {  // n whole lines, times a factor
    for (size_t k = 0; k < n; k += kVector) *(Vector*)(x + k) = bounded(factor * *(Vector*)(x + k));
}

// x for the first n lanes, else y
NBL_INLINE Vector first_lanes(int n, Vector x, Vector y) {
    WholeVector lane;
    each<kVector>([&](int k) { lane[k] = k; });
    return lane < Whole(n) ? x : y;
}

// The exponentials of n numbers less a shift, times a factor, and zeros up to whole lines. What is before `end` may be
// read: a copy of the last few numbers would take as long as the rest.
inline void exp_row(Real* to, const Real* from, int n, const Real* end, Real shift = 0, Real factor = 1) {
    for (int k = 0; k < n; k += kLine) __builtin_prefetch(from + k + 32 * kLine);  // rows follow each other
    int k = 0;
    for (; k + kVector <= n; k += kVector)
        *(Vector*)(to + k) = factor * exp_of(*(const LooseVector*)(from + k) - shift);
    for (; k < whole_lines(n); k += kVector) {
        Vector rest = {};
        if (from + k + kVector <= end) rest = *(const LooseVector*)(from + k);
        else if (k < n) std::memcpy(&rest, from + k, (n - k) * sizeof(Real));
        *(Vector*)(to + k) = first_lanes(n - k, factor * exp_of(rest - shift), Vector{});
    }
}

// out[k] = x[k] d[k] for n numbers. What is before `end` may be written.
inline void counts_row(Real* out, const Real* x, const Real* d, int n, const Real* end) {
    for (int k = 0; k < n; k += kVector) {
        const Vector counts = *(const Vector*)(x + k) * bounded(*(const Vector*)(d + k));
        if (out + k + kVector <= end) *(LooseVector*)(out + k) = counts;
        else std::memcpy(out + k, &counts, min(kVector, n - k) * sizeof(Real));
    }
}

// p(w_i | T) of a word over its largest, which is near 2^kPeak; gives the logarithm of the largest, 0 if it is -inf
inline Real leaf_row(Real* to, const Real* logp, int PT, int* scale) {
    Real peak = -INFINITY;
    for (int T = 0; T < PT; T++) peak = peak > logp[T] ? peak : logp[T];
    *scale = peak == -INFINITY ? kNever : -kPeak;
    if (peak == -INFINITY) peak = 0;
    exp_row(to, logp, PT, logp + PT, peak, power_of_two(kPeak));
    return peak;
}

// log(sum_A p(A | S) s[A])
inline double log_of_goal(const Real* logp_A_S, const Real* s, int A) {
    double sum = 0;
    for (int a = 0; a < A; a++) sum += std::exp(double(logp_A_S[a])) * s[a];
    return std::log(sum);
}
// the gradients of s and of log p(A | S), which may be null, from that of the logarithm
inline void derive_goal(const Real* logp_A_S, const Real* s, int A, double weight, Real* d_s, Real* d_logp_A_S) {
    const double log_sum = log_of_goal(logp_A_S, s, A);
    for (int a = 0; a < A; a++) {
        const double d = log_sum == -INFINITY ? 0 : weight * std::exp(logp_A_S[a] - log_sum);
        d_s[a] = bounded(Vector{} + Real(d))[0];
        if (d_logp_A_S) d_logp_A_S[a] = d * s[a];
    }
}

constexpr int kColumns = 2 * kLine;
// C (+)= A B as gemm, for a B that is too large for the nearest cache: a few columns of it serve all rows of A.
template <class RowA, class RowC>
void gemm_by_columns(bool add, int M, int N, int K, RowA a, size_t a_step, const Real* b, size_t b_step, RowC c) {
    for (int n = 0; n < N; n += kColumns)
        gemm(add, M, min(kColumns, N - n), K, a, a_step, b + n, b_step, [&](int m) { return c(m) + n; });
}
