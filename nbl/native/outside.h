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
        parent_factors();
        for (int high = l; high >= 1; high -= kBand) {
            const int low = max(high - kBand + 1, 1);
            derive_far(low, high);
            for (int width = high; width >= low; width--) {
                derive_I_near(low, width, high);
                derive_K_near(width, high);
                if (width == 1) break;
                if (width == l) derive_goal(log_Z);
                else derive_s(low, width);
                for (int i = 0; i + width <= l; i++) unscale_ds(i, i + width);
                derive_X(width);
            }
        }
        derive_leaves();
        if (problem.d_H_Aw) derive_W();
    }

    // The factors of the splits seen from the children: f_head[i, j, k] is that of the head child [i, j) and its sister
    // [j, k) or [k, i), f_other[i, j, k] the same for the other child.
    void parent_factors() const {
        for (int i = 0; i < l; i++)
            for (int j = i + 2; j <= l; j++)
                for (int k = i + 1; k < j; k++) {
                    f_head[f_at(i, k, j)] = f_other[f_at(k, j, i)] = f_left[f_at(i, j, k)];
                    f_head[f_at(k, j, i)] = f_other[f_at(i, k, j)] = f_right[f_at(i, j, k)];
                }
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
        Real *const s_first = s_at(0, width, 0), *const dI_first = dI.at(0, dI_row(0, 0, width, low));
        for (int c = 0; c < panels; c++) {
            const Real* const d = dI_first + c * dI.rows * kPanel;
            for (int D = 0; D < D_B; D++) {
                gemm(
                    true, rows, Ap, states(c), [&](int m) { return d + (m * D_B + D) * kPanel; }, 1,
                    Bt + (D * H + c * kPanel) * Ap, Ap,
                    [&](int m) { return ds_at(m / width, m / width + width, m / width + m % width); });
                gemm(
                    true, A, columns(c), rows, [&](int m) { return s_first + m; }, Ap, d + D * kPanel,
                    D_B * kPanel, [&](int m) { return dB.at(c, D * A + m); });
            }
            for (int i = 0; i + width <= l; i++) derive_words(c, i, i + width);
        }
    }

    // the part of derive_s for K of one span
    void derive_words(int c, int i, int j) const {
        alignas(kLineBytes) static const Real none[kPanel] = {};
        const Real *const left = unscaled_dK(c, LEFT, i, j), *const right = unscaled_dK(c, RIGHT, i, j);
        sum_words(c, i, j);
        derive_word_sums(c, 0, left, D_w == 1 ? right : none);
        if (D_w == 2) derive_word_sums(c, 1, none, right);
        for (int D = 0; D < D_w; D++) {
            gemm(
                true, j - i, Ap, states(c), [&](int m) { return w.at(c, D * l + i + m); }, 1,
                d_word_sums_t + D * kPanel * Ap, Ap, [&](int m) { return ds_at(i, j, i + m); });
            gemm(
                true, j - i, columns(c), A, [&](int m) { return s_at(i, j, i + m); }, 1, d_word_sums.at(c, D * A),
                kPanel, [&](int m) { return dw.at(c, D * l + i + m); });
        }
    }

    // d word_sums[D] = dK[LEFT] C[LEFT] + dK[RIGHT] C[RIGHT], both ways round; and the gradient of C
    void derive_word_sums(int c, int D, const Real* left, const Real* right) const {
        const int L = LEFT, R = D_C == 2 ? RIGHT : LEFT;
        const Real *const sums = word_sums.at(c, D * A), *const C_L = C.at(c, L * A), *const C_R = C.at(c, R * A);
        Real *const d_sums = d_word_sums.at(c, D * A), *const dC_L = dC.at(c, L * A), *const dC_R = dC.at(c, R * A);
        for (int h = 0; h < columns(c); h += kVector) {
            const Vector d_L = *(const Vector*)(left + h), d_R = *(const Vector*)(right + h);
            for (int n = h; n < A * kPanel; n += kPanel) {
                const Vector sum = *(const Vector*)(sums + n);
                *(Vector*)(d_sums + n) = d_L * *(const Vector*)(C_L + n) + d_R * *(const Vector*)(C_R + n);
                *(Vector*)(dC_L + n) += d_L * sum;
                *(Vector*)(dC_R + n) += d_R * sum;
            }
        }
        Real* const d_sums_t = d_word_sums_t + D * kPanel * Ap;
        const Real *const Ct_L = Ct + (L * H + c * kPanel) * Ap, *const Ct_R = Ct + (R * H + c * kPanel) * Ap;
        for (int h = 0; h < states(c); h++)
            for (int n = h * Ap; n < (h + 1) * Ap; n += kVector)
                *(Vector*)(d_sums_t + n) = left[h] * *(const Vector*)(Ct_L + n) + right[h] * *(const Vector*)(Ct_R + n);
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
        Real posterior = 0;
        for (int p = i; p < j; p++) {
            const Real* const value = s_at(i, j, p);
            Real* const d = ds_at(i, j, p);
            for (int a = 0; a < A; a++) posterior += value[a] * d[a];
            multiply(d, Ap, exponent == kNever ? Real(0) : power_of_two(-exponent));
        }
        if (problem.spans) problem.spans[i * (problem.l + 1) + j] = posterior;
    }

    // dX[i, j, p, H] = sum_A ds[i, j, p, A] p(H | A, w_p) for all spans of a width
    void derive_X(int width) const {
        for (int c = 0; c < panels; c++)
            for (int p = 0; p < l; p++) {
                const Range spans = spans_of(l, p, width);
                const auto ds_row = [&](int m) { return ds_at(spans.first + m, spans.first + m + width, p); };
                const auto dX_row = [&](int m) { return dX_at(c, p, spans.first + m, spans.first + m + width); };
                gemm(false, spans.size(), columns(c), A, ds_row, 1, W.at(c, p * A), kPanel, dX_row);
            }
    }

    // the gradient of p(H | A, w_p), from all spans with the head p at once
    void derive_W() const {
        for (int c = 0; c < panels; c++)
            for (int p = 0; p < l; p++) {
                std::memset(X_at(c, p, p, p + 1), 0, kPanelBytes);  // a row that exists, but means nothing
                gemm(
                    false, A, columns(c), (p + 1) * (l - p), [&](int m) { return ds_at(0, p + 1, p) + m; }, Ap,
                    X_at(c, p, 0, p + 1), kPanel, [&](int m) { return dW.at(c, p * A + m); });
            }
    }

    // keep * dI of [i, j) with head p + what comes from its parents [i, end) and [start, j)
    template <int L>
    NBL_INLINE void derive_I(int c, const Head& h, int i, int j, Range ends, Range starts, int low, Real keep) const {
        Real* out = dI.at(c, dI_row(h.p, i, j, low));
        Sums<L> sums;
        sums.add(ends.size(), h.dX + h.at(i, ends.first), kPanel, h.K_left(j, ends.first), h.next_K,
                 f_head + f_at(i, j, ends.first));
        if (D_B == 2) {
            sums.store(out, keep);
            out += kPanel;
            sums = Sums<L>();
        }
        sums.add(starts.size(), h.dX + h.at(starts.first, j), h.next_i, h.K_right(starts.first, i), h.next_K,
                 f_head + f_at(i, j, starts.first));
        sums.store(out, keep);
    }

    // dI and dK of a band from the parents wider than it; together, because both read dX
    void derive_far(int low, int high) const {
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int p = 0; p < l; p++) {
                    const Head h = head(c, p);
                    for (int i = 0; i < l; i++)
                        for (int j = i + low; j <= min(i + high, l); j++) {
                            if (p < i) derive_K_left<L>(c, h, i, j, {0, min(p, j - high - 1)});
                            else if (p >= j) derive_K_right<L>(c, h, i, j, {max(p + 1, i + high + 1), l});
                            else derive_I<L>(c, h, i, j, {i + high + 1, l}, {0, j - high - 1}, low, 0);
                        }
                }
            });
    }

    void derive_I_near(int low, int width, int high) const {
        if (width == high) return;
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int p = 0; p < l; p++) {
                    const Head h = head(c, p);
                    for (int i = spans_of(l, p, width).first; i <= spans_of(l, p, width).last; i++) {
                        const int j = i + width;
                        derive_I<L>(c, h, i, j, {j + 1, min(i + high, l)}, {max(j - high, 0), i - 1}, low, 1);
                    }
                }
            });
    }

    // dK of the spans of a width from the parents in the band
    void derive_K_near(int width, int high) const {
        if (width == high) return;
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int i = 0; i + width <= l; i++) {
                    const int j = i + width;
                    for (int p = max(0, j - high); p < i; p++)
                        derive_K_left<L>(c, head(c, p), i, j, {max(0, j - high), p});
                    for (int p = j; p < min(l, i + high); p++)
                        derive_K_right<L>(c, head(c, p), i, j, {p + 1, min(l, i + high)});
                }
            });
    }

    // adds to dK of [k, j) what comes from the parents [start, j) with head p
    template <int L> NBL_INLINE void derive_K_left(int c, const Head& h, int k, int j, Range starts) const {
        if (starts.size() > 0) parents_left<L>(h, k, j, starts).store(dK.at(c, K_row(LEFT, k, j)), 1);
    }
    // adds to dK of [i, k) what comes from the parents [i, end) with head p
    template <int L> NBL_INLINE void derive_K_right(int c, const Head& h, int i, int k, Range ends) const {
        if (ends.size() > 0) parents_right<L>(h, i, k, ends).store(dK.at(c, K_row(RIGHT, i, k)), 1);
    }
    template <int L> NBL_INLINE Sums<L> parents_left(const Head& h, int k, int j, Range starts) const {
        Sums<L> sums;
        sums.add(starts.size(), h.dX + h.at(starts.first, j), h.next_i, h.I[LEFT] + h.at(starts.first, k), h.next_i,
                 f_other + f_at(k, j, starts.first));
        return sums;
    }
    template <int L> NBL_INLINE Sums<L> parents_right(const Head& h, int i, int k, Range ends) const {
        Sums<L> sums;
        sums.add(ends.size(), h.dX + h.at(i, ends.first), kPanel, h.I[RIGHT] + h.at(k, ends.first), kPanel,
                 f_other + f_at(i, k, ends.first));
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
