// The outside recursion of the NBL-PCFG: d log Z / d entry for all entries of the chart and of the tables, from the
// widest spans down. Bands, far and near terms are as in inside.h.

#pragma once

#include "inside.h"

#include <limits>

class Outside : public Inside {
  public:
    using Inside::Inside;

    void outside(double log_Z) {
        std::memset(dK.start, 0, (base + used - dK.start) * sizeof(Real));
        std::memset(ds, 0, X.rows * Ap * sizeof(Real));
        for (int high = l; high >= 1; high -= kBand) {
            const int low = max(high - kBand + 1, 1);
            derive_I_far(low, high);
            for (int width = high; width >= low; width--) {
                derive_I_near(low, width, high);
                derive_K_near(width, high);
                if (width == 1) break;
                if (width == l) derive_goal(log_Z);
                else derive_s(low, width);
                for (int i = 0; i + width <= l; i++) unscale_ds(i, i + width);
                derive_X(width);
            }
            derive_K_far(low, high);
        }
        derive_leaves();
        if (problem.d_H_Aw) derive_w_and_C();
    }

    void derive_goal(double log_Z) const {
        for (int p = 0; p < l; p++)
            for (int a = 0; a < A; a++) {
                const Real value = s_at(0, l, p)[a];
                if (value < std::numeric_limits<Real>::min()) continue;  // no share in log Z, and an infinite inverse
                const Real d = std::exp(problem.root[p * A + a] + I_scale[cell(0, l)] * M_LN2 - log_Z);
                ds_at(0, l, p)[a] = d;
                if (problem.d_root) problem.d_root[p * A + a] = d * value;
                if (problem.arcs) problem.arcs[p] += d * value;
            }
    }

    // ds of a width from dI and dK, and the gradients of the tables in between
    void derive_s(int low, int width) const {
        const int rows = (l - width + 1) * width;
        Real* const s_first = s_at(0, width, 0);
        for (int c = 0; c < panels; c++) {
            for (int D = 0; D < D_B; D++) {
                const Real* const d = dI_at(c, low, 0, width, 0) + D * kPanel;
                gemm(true, rows, Ap, states(c), Rows{d, D_B * kPanel}, 1, Bt + (D * H + c * kPanel) * Ap, Ap,
                     Rows{ds_at(0, width, 0), Ap});
                gemm(true, A, columns(c), rows, Rows{s_first, 1}, Ap, d, D_B * kPanel, Rows{dB.at(c, D * A), kPanel});
            }
            for (int i = 0; i + width <= l; i++) derive_words(c, i, i + width);
        }
    }

    // ds of one span from dK: ds[q, C] += sum_H p(w_q, D | H) dK[D, H] p(C, D | H)
    void derive_words(int c, int i, int j) const {
        alignas(kLineBytes) static const Real none[kPanel] = {};
        const Real *const left = unscaled_dK(c, LEFT, i, j), *const right = unscaled_dK(c, RIGHT, i, j);
        for (int D = 0; D < D_w; D++) {
            const Real *const d_L = D == 0 ? left : none, *const d_R = D == D_w - 1 ? right : none;
            const Real* const C_L = Ct + c * kPanel * Ap, *const C_R = C_L + (D_C - 1) * H * Ap;
            for (int n = 0; n < Ap; n += kVector)
                for (int h = 0; h < states(c); h++)
                    *(Vector*)(d_word_sums + h * Ap + n) =
                        d_L[h] * *(const Vector*)(C_L + h * Ap + n) + d_R[h] * *(const Vector*)(C_R + h * Ap + n);
            gemm(true, j - i, Ap, states(c), Rows{w.at(c, D * l + i), kPanel}, 1, d_word_sums, Ap,
                 Rows{ds_at(i, j, i), Ap});
        }
    }

    // the gradients of w and C, for each word q from sum_i,j s[i, j, q, C] dK[i, j, D, H]
    void derive_w_and_C() const {
        const Rows sums{d_of_word, kPanel};
        for (int q = 0; q < l; q++) {
            const int ends = l - q;
            Real* next = s_of_word;  // [i][j]
            for (int i = 0; i <= q; i++)
                for (int j = q + 1; j <= l; j++, next += Ap)
                    if (j - i > 1) std::memcpy(next, s_at(i, j, q), Ap * sizeof(Real));
                    else std::memset(next, 0, Ap * sizeof(Real));
            for (int c = 0; c < panels; c++) {
                for (int j = q + 1; j <= l; j++)
                    gemm(j > q + 1, A, columns(c), q + 1, Rows{s_of_word + (j - q - 1) * Ap, 1}, ends * Ap,
                         dK.at(c, K_row(LEFT, 0, j)), kPanel, sums);
                derive_word(c, LEFT, q);
                for (int i = 0; i <= q; i++)
                    gemm(i > 0, A, columns(c), ends, Rows{s_of_word + i * ends * Ap, 1}, Ap,
                         dK.at(c, K_row(RIGHT, i, q + 1)), kPanel, sums);
                derive_word(c, RIGHT, q);
            }
        }
    }

    void derive_word(int c, int D, int q) const {
        const Real *const word = w.at(c, D % D_w * l + q), *const table = C.at(c, D % D_C * A);
        Real *const d_word = dw.at(c, D % D_w * l + q), *const d_table = dC.at(c, D % D_C * A);
        for (int h = 0; h < columns(c); h += kVector) {
            Vector sum = *(Vector*)(d_word + h);
            for (int n = h; n < A * kPanel; n += kPanel) {
                const Vector d = *(const Vector*)(d_of_word + n);
                sum += d * *(const Vector*)(table + n);
                *(Vector*)(d_table + n) += d * *(const Vector*)(word + h);
            }
            *(Vector*)(d_word + h) = sum;
        }
    }

    // dK as it was before K was scaled, in its place
    Real* unscaled_dK(int c, int D, int i, int j) const {
        Real* const d = dK.at(c, K_row(D, i, j));
        const int exponent = K_exponent[cell(i, j)];
        multiply(d, columns(c), exponent == kNever ? Real(0) : power_of_two(-exponent));
        return d;
    }

    // the same for ds; before that, s ds is the posterior of the span
    void unscale_ds(int i, int j) const {
        const int exponent = s_exponent[cell(i, j)];
        const Real* const value = s_at(i, j, i);
        Real* const d = ds_at(i, j, i);
        const size_t n = size_t(j - i) * Ap;
        if (problem.spans) {
            Real posterior = 0;
            for (size_t k = 0; k < n; k++) posterior += value[k] * d[k];
            problem.spans[i * (problem.l + 1) + j] = posterior;
        }
        multiply(d, n, exponent == kNever ? Real(0) : power_of_two(-exponent));
        mild[cell(i, j)] = peak_of(d, n) < std::numeric_limits<Real>::max() / power_of_two(kPeak + 2) / A / l;
    }

    // dX[i, j, p, H] = sum_A ds[i, j, p, A] p(H | A, w_p) for all spans of a width, in the place of X; and before it is
    // gone, the gradient of p(H | A, w_p)
    void derive_X(int width) const {
        for (int c = 0; c < panels; c++)
            for (int p = 0; p < l; p++) {
                const Range spans = spans_of(l, p, width);
                const int i = spans.first, j = i + width, next = width - 1;
                Real *const d = ds_at(i, j, p), *const X = X_at(c, i, j, p);
                if (problem.d_H_Aw)
                    gemm(true, A, columns(c), spans.size(), Rows{d, 1}, next * Ap, X, next * kPanel,
                         Rows{dW.at(c, p * A), kPanel});
                gemm(false, spans.size(), columns(c), A, Rows{d, next * Ap}, 1, W.at(c, p * A), kPanel,
                     Rows{X, next * kPanel});
            }
    }

    // dI of a band from the parents wider than it. As in split_sum_far, all parents and children that start in i are
    // treated together, and all that end in j.
    void derive_I_far(int low, int high) const {
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int i = 0; i + low <= l; i++)
                    in_blocks(low, min(high, l - i),
                              [&](int width, auto T) { derive_I_left<L, T>(c, low, high, i, i + width); });
                for (int j = low; j <= l; j++)
                    in_blocks(low, min(high, j),
                              [&](int width, auto T) { derive_I_right<L, T>(c, low, high, j - width, j); });
            });
    }

    // dI of the spans [i, k), ..., [i, k + T - 1) by their parents [i, j), wider than high
    template <int L, int T> void derive_I_left(int c, int low, int high, int i, int k) const {
        const int first = i + high + 1;
        Real* out[T];
        for (int t = 0; t < T; t++) {
            out[t] = dI_at(c, low, i, k + t, 0);
            for (int j = first; j <= l; j++) scale_K<L>(c, LEFT, i, j, k + t, scaled_at(t, j));
        }
        for (int j = first; j <= l; j++) operands[j] = X_at(c, i, j, 0);
        for (int p = i; p < k + T - 1; p++) {
            Sums<L, T> sums;
            add_terms(sums, p, l + 1 - first, operands + first, scaled_at(0, first));
            each<T>([&](int t) {
                if (p < k + t) sums.store(out[t] + p * D_B * kPanel, 0, t);
            });
        }
    }

    // the same of [k, j), ..., [k - T + 1, j) by their parents [i, j)
    template <int L, int T> void derive_I_right(int c, int low, int high, int k, int j) const {
        Real* out[T];
        for (int t = 0; t < T; t++) {
            out[t] = dI_at(c, low, k - t, j, 0) + (D_B - 1) * kPanel;
            for (int i = 0; i < j - high; i++) scale_K<L>(c, RIGHT, i, j, k - t, scaled_at(t, i));
        }
        for (int i = 0; i < j - high; i++) operands[i] = X_at(c, i, j, 0);
        for (int p = k - T + 1; p < j; p++) {
            Sums<L, T> sums;
            add_terms(sums, p, j - high, operands, scaled_at(0, 0));
            each<T>([&](int t) {
                if (p >= k - t) sums.store(out[t] + p * D_B * kPanel, D_B == 1, t);
            });
        }
    }

    void derive_I_near(int low, int width, int high) const {
        if (width == high) return;
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int i = 0; i + width <= l; i++) derive_I<L>(c, i, i + width, low, high);
            });
    }

    // adds to dI of [i, j) what comes from its parents [i, end) and [start, j), no wider than high
    template <int L> NBL_INLINE void derive_I(int c, int i, int j, int low, int high) const {
        const Real **const dX_left = operands, **const dX_right = operands + l + 1;
        const Range ends = {j + 1, min(i + high, l)}, starts = {max(j - high, 0), i - 1};
        for (int end = ends.first; end <= ends.last; end++) {
            scale_K<L>(c, LEFT, i, end, j, scaled_at(LEFT, end));
            dX_left[end] = X_at(c, i, end, 0);
        }
        for (int start = starts.first; start <= starts.last; start++) {
            scale_K<L>(c, RIGHT, start, j, i, scaled_at(RIGHT, start));
            dX_right[start] = X_at(c, start, j, 0);
        }
        Real* out = dI_at(c, low, i, j, i);
        for (int p = i; p < j; p++, out += kPanel) {
            Sums<L> sums;
            add_terms(sums, p, ends.size(), dX_left + ends.first, scaled_at(LEFT, ends.first));
            if (D_B == 2) {
                sums.store(out, 1);
                out += kPanel;
                sums = Sums<L>();
            }
            add_terms(sums, p, starts.size(), dX_right + starts.first, scaled_at(RIGHT, starts.first));
            sums.store(out, 1);
        }
    }

    // dK of the spans of a width from the parents in the band
    void derive_K_near(int width, int high) const {
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int parent = width + 1; parent <= high; parent++)
                    for (int i = 0; i + parent <= l; i++) {
                        derive_K_left<L, 1>(c, i, i + parent, i + parent - width);
                        derive_K_right<L, 1>(c, i, i + parent, i + width);
                    }
            });
    }

    // dK of the spans narrower than a band from the parents in it
    void derive_K_far(int low, int high) const {
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int i = 0; i + low <= l; i++)
                    for (int k = i + 1; k < min(i + high, l); k++)
                        in_blocks(max(low, k + 1 - i), min(min(high, l - i), k - i + low - 1),
                                  [&](int width, auto T) { derive_K_left<L, T>(c, i, i + width, k); });
                for (int j = low; j <= l; j++)
                    for (int k = max(j - high, 0) + 1; k < j; k++)
                        in_blocks(max(low, j - k + 1), min(min(high, j), j - k + low - 1),
                                  [&](int width, auto T) { derive_K_right<L, T>(c, j - width, j, k); });
            });
    }

    // adds to dK of the spans [k, j), ..., [k, j + T - 1) what comes from their parents [i, j), ..., for all heads
    template <int L, int T> NBL_INLINE void derive_K_left(int c, int i, int j, int k) const {
        const Real* dX[T];
        each<T>([&](int t) { dX[t] = X_at(c, i, j + t, i); });
        Sums<L, T> sums;
        sums.add(k - i, Rows{I_at(c, LEFT, i, k, i), kPanel}, dX, kPanel);
        each<T>([&](int t) { add_dK<L, T>(sums, t, c, LEFT, i, j + t, k); });
    }

    // the same of [i, k), ..., [i - T + 1, k)
    template <int L, int T> NBL_INLINE void derive_K_right(int c, int i, int j, int k) const {
        const Real* dX[T];
        each<T>([&](int t) { dX[t] = X_at(c, i - t, j, k); });
        Sums<L, T> sums;
        sums.add(j - k, Rows{I_at(c, RIGHT, k, j, k), kPanel}, dX, kPanel);
        each<T>([&](int t) { add_dK<L, T>(sums, t, c, RIGHT, i - t, j, k); });
    }

    // Adds a sum of dX I to dK. Such a product is at most 1 / (f K) and may be beyond the range: then f comes first.
    template <int L, int T>
    NBL_INLINE void add_dK(const Sums<L, T>& sums, int t, int c, int D, int i, int j, int k) const {
        const Real f = (D == LEFT ? f_left : f_right)[f_at(i, j, k)];
        Real* const out = dK.at(c, D == LEFT ? K_row(LEFT, k, j) : K_row(RIGHT, i, k));
        if (__builtin_expect(mild[cell(i, j)], true)) return sums.store(out, 1, t, f);
        const Range heads = D == LEFT ? Range{i, k - 1} : Range{k, j - 1};
        for (int p = heads.first; p <= heads.last; p++) {
            Sums<L> exact;
            exact.add(f, X_at(c, i, j, p), D == LEFT ? I_at(c, D, i, k, p) : I_at(c, D, k, j, p));
            exact.store(out, 1);
        }
    }

    // dK of [k, j) as far as it comes from the head p
    template <int L> NBL_INLINE Sums<L> parents_left(int c, int p, int k, int j) const {
        Sums<L> sums;
        for (int i = 0; i <= p; i++) sums.add(f_left[f_at(i, j, k)], X_at(c, i, j, p), I_at(c, LEFT, i, k, p));
        return sums;
    }
    // the same of [i, k)
    template <int L> NBL_INLINE Sums<L> parents_right(int c, int p, int i, int k) const {
        Sums<L> sums;
        for (int j = p + 1; j <= l; j++) sums.add(f_right[f_at(i, j, k)], X_at(c, i, j, p), I_at(c, RIGHT, k, j, p));
        return sums;
    }

    void derive_leaves() const {
        for (int c = 0; c < panels; c++)
            for (int p = 0; p < l; p++) {
                for (int D = 0; D < D_B; D++)
                    for (int h = 0; h < columns(c); h++) d_leaf_B.at(c, D)[h] += dI.at(c, p * D_B + D)[h];
                for (int D = LEFT; D <= RIGHT; D++) {
                    const Real* const d = unscaled_dK(c, D, p, p + 1);
                    const int word = D % D_w * l + p, leaf = D % D_C;
                    for (int h = 0; h < columns(c); h++) {
                        d_leaf_C.at(c, leaf)[h] += d[h] * w.at(c, word)[h];
                        dw.at(c, word)[h] += d[h] * leaf_C.at(c, leaf)[h];
                    }
                }
            }
    }
};
