// The chart of one sentence of the NBL-PCFG: what is stored, where, and how tables get in and gradients out.

#pragma once

#include "dense.h"
#include "scaled_chart.h"

#include <initializer_list>

constexpr int kBand = 4;  // widths that are worked on together

// What Python passes (bilexical_native.py). Tables and gradients are laid out as in bilexical_torch.Tables; gradients
// and posteriors are zero at the start, and null where not wanted.
struct Problem {
    int64_t length, l, A, H, D_B, D_C, D_w;  // words of this sentence; sizes of the axes
    const Real *root, *H_Aw, *B_H, *leaf_B, *C_H, *leaf_C, *w_H;
    Real* log_Z;
    Real *d_root, *d_H_Aw, *d_B, *d_leaf_B, *d_C, *d_leaf_C, *d_w;
    Real *spans, *arcs;
    Real* scratch;
};

// The memory of a sentence, and where things are in it
class Chart : public Scratch {
  public:
    explicit Chart(const Problem& p) : Scratch(p.scratch), problem(p) { layout(); }

  protected:
    const Problem& problem;
    const int l = problem.length, A = problem.A, H = problem.H, D_B = problem.D_B, D_C = problem.D_C, D_w = problem.D_w;
    const int Ap = whole_lines(A), Hp = whole_lines(H), panels = (H + kPanel - 1) / kPanel;
    const bool outside_wanted = problem.d_root || problem.spans;

    Panels w, W, B, C, leaf_B, leaf_C;           // the tables; rows: [D][q], [p][A], [D][A], [D][A], [D], [D]
    Real *Wt, *Bt, *Ct;                          // the same with the symbols innermost: [p][H][Ap], [D][H][Ap]
    Panels X, I, K, word_sums;                   // rows: see X_at, I_at, K_row; word_sums is T, [D][C]
    Real *s, *f_left, *f_right;                  // see s_at, split_factors
    int *I_scale, *K_scale, *X_scale;            // [i][j]
    int *s_exponent, *K_exponent;                // [i][j], of what s and K were divided by
    Panels dX, dI, dK, d_word_sums;              // rows: as above; see dI_row
    Real *ds, *d_word_sums_t, *f_head, *f_other; // see ds_at, derive_words, parent_factors
    Panels dW, dB, dC, d_leaf_B, d_leaf_C, dw;   // rows: as those of the tables
    Panels dK_by_head, K_by_word;                // rows: [p], [q]
    Real *K_by_word_t, *counts;                  // see add_arcs

    Panels take_panels(size_t rows) { return {take(rows * panels * kPanel), rows}; }

    void layout() {
        const size_t cells = (l + 1) * (l + 1), rows = row(l, 0, l + 1), widest = (l + 1) * (l + 1) / 4;
        w = take_panels(D_w * l);
        Wt = take(size_t(l) * H * Ap);
        W = take_panels(l * A);
        B = take_panels(D_B * A);
        C = take_panels(D_C * A);
        leaf_B = take_panels(D_B);
        leaf_C = take_panels(D_C);
        X = take_panels(rows);
        I = take_panels(D_B * rows);
        K = take_panels(2 * cells);
        word_sums = take_panels(D_w * A);
        s = take(rows * Ap);
        for (int** table : {&I_scale, &K_scale, &X_scale, &s_exponent, &K_exponent}) *table = take<int>(cells);
        f_left = take(cells * (l + 1));
        f_right = take(cells * (l + 1));
        if (!outside_wanted) return;
        Bt = take(D_B * H * Ap);
        Ct = take(D_C * H * Ap);
        ds = take(rows * Ap);
        dX = problem.d_H_Aw ? take_panels(rows) : X;
        f_head = take(cells * (l + 1));
        f_other = take(cells * (l + 1));
        dI = take_panels((kBand * widest + l) * D_B);
        d_word_sums = take_panels(D_w * A);
        d_word_sums_t = take(D_w * kPanel * Ap);
        dK = take_panels(2 * cells);  // from here on: zero at the start of the outside pass
        dW = take_panels(l * A);
        dB = take_panels(D_B * A);
        dC = take_panels(D_C * A);
        d_leaf_B = take_panels(D_B);
        d_leaf_C = take_panels(D_C);
        dw = take_panels(D_w * l);
        if (!problem.arcs) return;
        dK_by_head = take_panels(l);
        K_by_word = take_panels(l);
        K_by_word_t = take(kPanel * whole_lines(l));
        counts = take(l * whole_lines(l));
    }

    int columns(int panel) const { return min(kPanel, Hp - panel * kPanel); }  // in whole lines
    int states(int panel) const { return min(kPanel, H - panel * kPanel); }    // of H

    int cell(int i, int j) const { return i * (l + 1) + j; }
    // The rows of a head p are a block [i][j], i <= p < j, so that sums over k run along a row or a column of it.
    size_t row(int p, int i, int j) const {
        const size_t before = size_t(p) * (p + 1) * (3 * l - 2 * p + 2) / 6;  // sum over p' < p of (p' + 1) (l - p')
        return before + size_t(i) * (l - p) + (j - p - 1);
    }
    Real* X_at(int c, int p, int i, int j) const { return X.at(c, row(p, i, j)); }
    Real* dX_at(int c, int p, int i, int j) const { return dX.at(c, row(p, i, j)); }
    Real* I_at(int c, int D, int p, int i, int j) const { return I.at(c, (D_B == 2 ? D : 0) * X.rows + row(p, i, j)); }
    // [j][i] for LEFT, [i][j] for RIGHT: the ways in which the split-sum runs
    size_t K_row(int D, int i, int j) const { return D == LEFT ? cell(j, i) : K.rows / 2 + cell(i, j); }

    // One panel of the rows of a head, and of K: what the sums over splits read
    struct Head {
        int p;
        size_t next_i;  // from the row of [i, j) to that of [i + 1, j); that of [i, j + 1) is the next one
        Real *X, *dX, *I[2];
        size_t next_K;  // from K of [k, j) to that of [k, j + 1), LEFT, or of [i, k) to that of [i + 1, k), RIGHT
        Real* K[2];

        NBL_INLINE ptrdiff_t at(int i, int j) const { return i * ptrdiff_t(next_i) + ptrdiff_t(j - p - 1) * kPanel; }
        NBL_INLINE Real* K_left(int i, int j) const { return K[LEFT] + j * ptrdiff_t(next_K) + i * kPanel; }
        NBL_INLINE Real* K_right(int i, int j) const { return K[RIGHT] + i * ptrdiff_t(next_K) + j * kPanel; }
    };
    Head head(int c, int p) const {
        const size_t next_i = size_t(l - p) * kPanel, next_K = size_t(l + 1) * kPanel;
        return {p, next_i, X_at(c, p, 0, p + 1), outside_wanted ? dX_at(c, p, 0, p + 1) : nullptr,
                {I_at(c, LEFT, p, 0, p + 1), I_at(c, RIGHT, p, 0, p + 1)}, next_K,
                {K.at(c, K_row(LEFT, 0, 0)), K.at(c, K_row(RIGHT, 0, 0))}};
    }
    int lines(int c) const { return columns(c) / kLine; }

    size_t s_row(int i, int j, int p) const { return row_by_width(l, i, j, p); }
    Real* s_at(int i, int j, int p) const { return s + s_row(i, j, p) * Ap; }
    Real* ds_at(int i, int j, int p) const { return ds + row(p, i, j) * Ap; }
    size_t dI_row(int p, int i, int j, int low) const { return (s_row(i, j, p) - s_row(0, low, 0)) * D_B; }

    void pad(Panels to, const Real* from, int outer, int D_size) const {  // [outer][D][H] to rows [D][outer]
        for (int o = 0; o < outer; o++)
            for (int D = 0; D < D_size; D++, from += H)
                for (int c = 0; c < panels; c++) {
                    Real* const target = to.at(c, D * outer + o);
                    std::memcpy(target, from + c * kPanel, states(c) * sizeof(Real));
                    std::memset(target + states(c), 0, (kPanel - states(c)) * sizeof(Real));
                }
    }

    void unpad(Real* to, Panels from, int outer, int D_size) const {
        for (int o = 0; o < outer; o++)
            for (int D = 0; D < D_size; D++, to += H)
                for (int c = 0; c < panels; c++)
                    std::memcpy(to + c * kPanel, from.at(c, D * outer + o), states(c) * sizeof(Real));
    }

    void transpose(Real* to, const Real* from, size_t step) const {  // rows of H, a step apart, to [H][Ap]
        for (int h = 0; h < H; h++)
            for (int a = 0; a < Ap; a++) to[h * Ap + a] = a < A ? from[a * step + h] : Real(0);
    }

    void pack() const {
        pad(w, problem.w_H, l, D_w);
        pad(W, problem.H_Aw, l * A, 1);
        pad(B, problem.B_H, A, D_B);
        pad(C, problem.C_H, A, D_C);
        pad(leaf_B, problem.leaf_B, 1, D_B);
        pad(leaf_C, problem.leaf_C, 1, D_C);
        for (int p = 0; p < l; p++) transpose(Wt + size_t(p) * H * Ap, problem.H_Aw + size_t(p) * A * H, H);
        if (!outside_wanted) return;
        for (int D = 0; D < D_B; D++) transpose(Bt + D * H * Ap, problem.B_H + D * H, D_B * H);
        for (int D = 0; D < D_C; D++) transpose(Ct + D * H * Ap, problem.C_H + D * H, D_C * H);
    }

    void unpack() const {
        unpad(problem.d_H_Aw, dW, l * A, 1);
        unpad(problem.d_B, dB, A, D_B);
        unpad(problem.d_C, dC, A, D_C);
        unpad(problem.d_leaf_B, d_leaf_B, 1, D_B);
        unpad(problem.d_leaf_C, d_leaf_C, 1, D_C);
        unpad(problem.d_w, dw, l, D_w);
    }
};
