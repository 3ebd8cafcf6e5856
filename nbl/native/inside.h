// The inside recursion of the NBL-PCFG.
//
// The sums over the splits read the whole chart, so they are taken for a band of several widths at once: `far` terms,
// whose operands are narrower than the band, for all its spans, head by head, while a head's operands are in the cache;
// the few `near` terms inside the band width by width.

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
                    std::memcpy(I_at(c, D, p, p, p + 1), leaf_B.at(c, D), kPanelBytes);
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

    // adds the terms of X[i, j, p] for the given splits
    template <int L> NBL_INLINE void add_splits(Sums<L>& sums, const Head& h, int i, int j, Range splits) const {
        const Range right = {splits.first, min(splits.last, h.p)}, left = {max(splits.first, h.p + 1), splits.last};
        sums.add(right.size(), h.I[RIGHT] + h.at(right.first, j), h.next_i, h.K_right(i, right.first), kPanel,
                 f_right + f_at(i, j, right.first));
        sums.add(left.size(), h.I[LEFT] + h.at(i, left.first), kPanel, h.K_left(left.first, j), kPanel,
                 f_left + f_at(i, j, left.first));
    }

    void split_sum_far(int low, int high) const {
        for (int i = 0; i + low <= l; i++)
            for (int j = i + low; j <= min(i + high, l); j++) {
                const Range far = far_splits(i, j, low);
                split_factors(i, j, far, split_scale(i, j, far, 2 * kNever));
            }
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int p = 0; p < l; p++) {
                    const Head h = head(c, p);
                    for (int i = 0; i <= p; i++)
                        for (int j = max(i + low, p + 1); j <= min(i + high, l); j++) {
                            Sums<L> sums;
                            add_splits(sums, h, i, j, far_splits(i, j, low));
                            sums.store(h.X + h.at(i, j));
                        }
                }
            });
    }

    void split_sum_near(int low, int width) const {
        for (int i = 0; i + width <= l; i++) {
            const int j = i + width;
            const Range far = far_splits(i, j, low), before = {i + 1, far.first - 1}, after = {far.last + 1, j - 1};
            if (far.size() == width - 1) continue;
            const int far_scale = X_scale[cell(i, j)], scale = split_scale(i, j, {i + 1, j - 1}, 2 * kNever);
            const Real keep = power_of_two(far_scale - scale);
            split_factors(i, j, {i + 1, j - 1}, scale);
            for (int c = 0; c < panels; c++)
                with_lines(lines(c), [&](auto L) {
                    for (int p = i; p < j; p++) {
                        const Head h = head(c, p);
                        Sums<L> sums;
                        add_splits(sums, h, i, j, before);
                        add_splits(sums, h, i, j, after);
                        sums.store(h.X + h.at(i, j), keep);
                    }
                });
        }
    }

    // s[i, j, p, A] = sum_H X[i, j, p, H] p(H | A, w_p) for all spans of a width
    void contract_H(int width) const {
        for (int c = 0; c < panels; c++)
            for (int p = 0; p < l; p++) {
                const Range spans = spans_of(l, p, width);
                const auto X_row = [&](int m) { return X_at(c, p, spans.first + m, spans.first + m + width); };
                const auto s_row = [&](int m) { return s_at(spans.first + m, spans.first + m + width, p); };
                const Real* const table = Wt + (size_t(p) * H + c * kPanel) * Ap;
                gemm(c > 0, spans.size(), Ap, states(c), X_row, 1, table, Ap, s_row);
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
                gemm(
                    false, spans * width, columns(c), A, [&](int m) { return s_at(0, width, 0) + m * Ap; }, 1,
                    B.at(c, D * A), kPanel,
                    [&](int m) { return I_at(c, D, m / width + m % width, m / width, m / width + width); });
            for (int i = 0; i < spans; i++) {
                sum_words(c, i, i + width);
                for (int D = LEFT; D <= RIGHT; D++)
                    with_lines(lines(c), [&](auto L) {
                        Sums<L> sums;
                        sums.add(A, word_sums.at(c, D % D_w * A), kPanel, C.at(c, D % D_C * A), kPanel);
                        sums.store(K.at(c, K_row(D, i, i + width)));
                    });
            }
        }
        for (int i = 0; i < spans; i++) rescale_K(i, i + width);
    }

    // word_sums[D][C][H] = sum_q s[i, j, q, C] p(w_q, D | H)
    void sum_words(int c, int i, int j) const {
        for (int D = 0; D < D_w; D++)
            gemm(
                false, A, columns(c), j - i, [&](int m) { return s_at(i, j, i) + m; }, Ap, w.at(c, D * l + i),
                kPanel, [&](int m) { return word_sums.at(c, D * A + m); });
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
