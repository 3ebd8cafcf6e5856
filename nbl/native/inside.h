// The inside recursion of the NBL-PCFG.
//
// The sums over the splits read the whole chart, so they are taken for a band of several widths at once: `far` terms,
// whose operands are narrower than the band, for all its spans that share an end, as these share operands, too; the few
// `near` terms inside the band width by width.

#pragma once

#include "chart.h"

#include <cmath>

class Inside : public Chart {
  public:
    using Chart::Chart;

    void inside() {
        for (int c = 0; c < panels; c++)
            for (int p = 0; p < l; p++) {
                for (int D = 0; D < D_B; D++)
                    std::memcpy(I_at(c, D, p, p + 1, p), leaf_B.at(c, D), kPanelBytes);
                for (int D = LEFT; D <= RIGHT; D++)
                    multiply(K.at(c, K_row(D, p, p + 1)), w.at(c, D % D_w * l + p), leaf_C.at(c, D % D_C), kPanel);
            }
        for (int p = 0; p < l; p++) {
            I_scale[cell(p, p + 1)] = 0;
            rescale_K(p, p + 1);
        }
        for (int low = 2; low <= l; low += kBand) {
            const int high = min(low + kBand - 1, l);
            split_sum_far(low, high);
            for (int width = low; width <= high; width++) {
                split_sum_near(low, width);
                contract_H(width);
                for (int i = 0; i + width <= l; i++) rescale_s(i, i + width);
                if (width < l) make_I_and_K(width);
            }
        }
    }

    // The splits k of [i, j) into two spans narrower than low; where there are none, an empty range at j.
    Range far_splits(int i, int j, int low) const {
        const Range far = {max(i + 1, j - low + 1), min(j - 1, i + low - 1)};
        return far.size() > 0 ? far : Range{j, j - 1};
    }

    // the largest scale of the terms of the given splits, and of what is known
    int split_scale(int i, int j, Range splits, int scale) const {
        for (int k = splits.first; k <= splits.last; k++) {
            scale = max(scale, I_scale[cell(i, k)] + K_scale[cell(k, j)]);
            scale = max(scale, K_scale[cell(i, k)] + I_scale[cell(k, j)]);
        }
        return scale;
    }

    // f_left[i, j, k], f_right[i, j, k]: what brings I K of the split k to the scale of X
    size_t f_at(int i, int j, int k) const { return size_t(cell(i, j)) * (l + 1) + k; }
    void split_factors(int i, int j, Range splits, int scale) const {
        for (int k = splits.first; k <= splits.last; k++) {
            f_left[f_at(i, j, k)] = power_of_two(I_scale[cell(i, k)] + K_scale[cell(k, j)] - scale);
            f_right[f_at(i, j, k)] = power_of_two(K_scale[cell(i, k)] + I_scale[cell(k, j)] - scale);
        }
        X_scale[cell(i, j)] = scale;
    }

    // K of the other child of a split, brought to the scale of X: the same for all heads
    template <int L> NBL_INLINE void scale_K(int c, int D, int i, int j, int k, Real* out) const {
        const Real factor = (D == LEFT ? f_left : f_right)[f_at(i, j, k)];
        const auto from = (const Vector*)K.at(c, D == LEFT ? K_row(LEFT, k, j) : K_row(RIGHT, i, k));
        each<Sums<L>::V>([&](int v) { ((Vector*)out)[v] = factor * from[v]; });
    }

    // adds n terms to sums, for the head p: the operands x, counted from head 0, times scaled K from the given row on
    template <int L, int T>
    NBL_INLINE void add_terms(Sums<L, T>& sums, int p, int n, const Real* const* x, const Real* first) const {
        const Real* y[T];
        each<T>([&](int t) { y[t] = first + t * (l + 1) * kPanel; });
        sums.add(n, [&](int m) NBL_INLINED { return x[m] + p * kPanel; }, y, kPanel);
    }

    // All spans of a band that start in i have their operands I in common, where the head is left; those that end in j
    // where it is right. One load of I serves all their sums.
    void split_sum_far(int low, int high) const {
        for (int i = 0; i + low <= l; i++)
            for (int j = i + low; j <= min(i + high, l); j++) {
                const Range far = far_splits(i, j, low);
                split_factors(i, j, far, split_scale(i, j, far, 2 * kNever));
            }
        if (low == 2) high = 2;  // wider spans have no such splits
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int i = 0; i + low <= l; i++)
                    in_blocks(low, min(high, l - i),
                              [&](int width, auto T) { split_left<L, T>(c, low, i, i + width); });
                for (int j = low; j <= l; j++)
                    in_blocks(low, min(high, j),
                              [&](int width, auto T) { split_right<L, T>(c, low, j - width, j); });
            });
    }

    // X of the spans [i, j), ..., [i, j + T - 1) by the far splits whose left child has the head
    template <int L, int T> void split_left(int c, int low, int i, int j) const {
        const int end = i + low;
        Real* out[T];
        for (int t = 0; t < T; t++) {
            out[t] = X_at(c, i, j + t, 0);
            for (int k = i + 1; k < end; k++)
                if (j + t - k < low) scale_K<L>(c, LEFT, i, j + t, k, scaled_at(t, k));
                else std::memset(scaled_at(t, k), 0, kPanelBytes);
        }
        for (int k = i + 1; k < end; k++) operands[k] = I_at(c, LEFT, i, k, 0);
        for (int p = i; p < end - 1; p++) {
            Sums<L, T> sums;
            add_terms(sums, p, end - 1 - p, operands + p + 1, scaled_at(0, p + 1));
            each<T>([&](int t) { sums.store(out[t] + p * kPanel, 0, t); });
        }
    }

    // the same of [i, j), ..., [i - T + 1, j) by those whose right child has it, added to the former
    template <int L, int T> void split_right(int c, int low, int i, int j) const {
        const int start = j - low;
        Real* out[T];
        for (int t = 0; t < T; t++) {
            out[t] = X_at(c, i - t, j, 0);
            for (int k = start + 1; k < j; k++)
                if (k - (i - t) < low) scale_K<L>(c, RIGHT, i - t, j, k, scaled_at(t, k));
                else std::memset(scaled_at(t, k), 0, kPanelBytes);
        }
        for (int k = start + 1; k < j; k++) operands[k] = I_at(c, RIGHT, k, j, 0);
        for (int p = start + 1; p < j; p++) {
            Sums<L, T> sums;
            add_terms(sums, p, p - start, operands + start + 1, scaled_at(0, start + 1));
            each<T>([&](int t) { sums.store(out[t] + p * kPanel, p - (i - t) < low - 1, t); });
        }
    }

    void split_sum_near(int low, int width) const {
        const Real **const I_left = operands, **const I_right = operands + l + 1;
        for (int i = 0; i + width <= l; i++) {
            const int j = i + width;
            const Range far = far_splits(i, j, low), before = {i + 1, far.first - 1}, after = {far.last + 1, j - 1};
            if (far.size() == width - 1) continue;
            const int far_scale = X_scale[cell(i, j)], scale = split_scale(i, j, {i + 1, j - 1}, 2 * kNever);
            const Real keep = power_of_two(far_scale - scale);
            split_factors(i, j, {i + 1, j - 1}, scale);
            for (int c = 0; c < panels; c++)
                with_lines(lines(c), [&](auto L) {
                    for (Range splits : {before, after})
                        for (int k = splits.first; k <= splits.last; k++) {
                            scale_K<L>(c, LEFT, i, j, k, scaled_at(LEFT, k));
                            scale_K<L>(c, RIGHT, i, j, k, scaled_at(RIGHT, k));
                            I_left[k] = I_at(c, LEFT, i, k, 0);
                            I_right[k] = I_at(c, RIGHT, k, j, 0);
                        }
                    for (int p = i; p < j; p++) {
                        Sums<L> sums;
                        for (Range splits : {before, after}) {
                            const Range right = {splits.first, min(splits.last, p)};
                            const Range left = {max(splits.first, p + 1), splits.last};
                            add_terms(sums, p, right.size(), I_right + right.first, scaled_at(RIGHT, right.first));
                            add_terms(sums, p, left.size(), I_left + left.first, scaled_at(LEFT, left.first));
                        }
                        sums.store(X_at(c, i, j, p), keep);
                    }
                });
        }
    }

    // s[i, j, p, A] = sum_H X[i, j, p, H] p(H | A, w_p) for all spans of a width
    void contract_H(int width) const {
        for (int c = 0; c < panels; c++)
            for (int p = 0; p < l; p++) {
                const Range spans = spans_of(l, p, width);
                const int i = spans.first, j = i + width;
                const Real* const table = Wt + (size_t(p) * H + c * kPanel) * Ap;
                gemm(c > 0, spans.size(), Ap, states(c), Rows{X_at(c, i, j, p), (width - 1) * kPanel}, 1, table, Ap,
                     Rows{s_at(i, j, p), (width - 1) * Ap});
            }
    }

    void rescale_s(int i, int j) const {
        const size_t n = (j - i) * Ap;
        const int exponent = rescale(s_at(i, j, i), n);
        s_exponent[cell(i, j)] = exponent;
        I_scale[cell(i, j)] = exponent == kNever ? kNever : X_scale[cell(i, j)] + exponent;
    }

    void rescale_K(int i, int j) const {
        Real peak = 0;
        for (int D = LEFT; D <= RIGHT; D++)
            for (int c = 0; c < panels; c++) peak = std::fmax(peak, peak_of(K.at(c, K_row(D, i, j)), columns(c)));
        const int exponent = exponent_of(peak);
        if (exponent != kNever)
            for (int D = LEFT; D <= RIGHT; D++)
                for (int c = 0; c < panels; c++)
                    multiply(K.at(c, K_row(D, i, j)), columns(c), power_of_two(-exponent));
        K_exponent[cell(i, j)] = exponent;
        K_scale[cell(i, j)] = exponent == kNever ? kNever : I_scale[cell(i, j)] + exponent;
    }

    void make_I_and_K(int width) const {
        const int spans = l - width + 1;
        for (int c = 0; c < panels; c++) {
            for (int D = 0; D < D_B; D++)
                gemm(false, spans * width, columns(c), A, Rows{s_at(0, width, 0), Ap}, 1, B.at(c, D * A), kPanel,
                     Rows{I_at(c, D, 0, width, 0), kPanel});
            for (int i = 0; i < spans; i++) make_K(c, i, i + width);
        }
        for (int i = 0; i < spans; i++) rescale_K(i, i + width);
    }

    // K[i, j, D, H] = sum_C p(C, D | H) sum_q s[i, j, q, C] p(w_q, D | H). The sums over q stay in registers.
    void make_K(int c, int i, int j) const {
        constexpr int kSymbols = kVectorBytes == kLineBytes ? 16 : 8;  // as many sums as there are registers for
        const int blocks = (A + kSymbols - 1) / kSymbols;
        for (int first = 0, block = 0; block < blocks; block++) {
            const int n = (A - first + blocks - block - 1) / (blocks - block);
            with_count<kSymbols>(n, [&](auto N) {
                for (int D = 0; D < D_w; D++)
                    for (int h = 0; h < columns(c); h += kVector) {
                        const Real *word = w.at(c, D * l + i) + h, *symbols = s_at(i, j, i) + first;
                        Vector sums[N];
                        each<N>([&](int m) NBL_INLINED { sums[m] = Vector{}; });
                        for (int q = i; q < j; q++, word += kPanel, symbols += Ap)
                            each<N>([&](int m) NBL_INLINED { sums[m] += symbols[m] * *(const Vector*)word; });
                        for (int D_K = D; D_K <= RIGHT; D_K += D_w) {
                            const Real* const table = C.at(c, D_K % D_C * A + first) + h;
                            const auto out = (Vector*)(K.at(c, K_row(D_K, i, j)) + h);
                            Vector sum = first > 0 ? *out : Vector{};
                            each<N>([&](int m) NBL_INLINED { sum += sums[m] * *(const Vector*)(table + m * kPanel); });
                            *out = sum;
                        }
                    }
            });
            first += n;
        }
    }

    double goal() const {
        double peak = -INFINITY, sum = 0;
        for (bool summing : {false, true})
            for (int p = 0; p < l; p++)
                for (int a = 0; a < A; a++) {
                    const double term = std::log(double(s_at(0, l, p)[a])) + problem.root[p * A + a];
                    if (summing) sum += std::exp(term - peak);
                    else peak = term > peak ? term : peak;
                }
        return peak == -INFINITY ? peak : peak + std::log(sum) + I_scale[cell(0, l)] * M_LN2;
    }
};
