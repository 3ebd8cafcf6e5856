// The rules p(B, C, D | A, w_p) of all heads of one sentence, in the layouts that the chart of lexical.cpp reads, and
// the way back of their gradients.
//
//     p(B, C, D | A, w_p) = u[p, A, D, B] p(C | A, B, D, w_p),   p(C | A, B, D, w_p) ~ exp(word_C[p] + parent_C[A])
//
// with u = p(B, D | A, w_p). Vectors run over A, so that sums over B and C are sums of vectors.

#pragma once

#include "dense.h"
#include "exponential.h"
#include "lanes.h"
#include "scaled_chart.h"

#include <algorithm>
#include <cmath>

// What Python passes (inside/lexical/native.py), of one sentence. Factors are laid out as in LexicalRules but parent_C, which
// is [D][B][C][A padded to whole lines]. What is not wanted is null; spans and arcs are zero at the start.
struct Problem {
    int64_t length, l, A, PT, legacy;  // words of this sentence; sizes of the axes; repeat the released arcs' errors
    const Real *logp_A_S, *logp_w_X, *logp_BD_Aw, *parent_C, *word_C;
    Real* log_Z;
    Real *d_logp_A_S, *d_logp_w_X, *d_logp_BD_Aw, *d_parent_C, *d_word_C;
    Real *spans, *arcs;
    Real* scratch;
};

class Heads : public Scratch {
  protected:
    explicit Heads(const Problem& p) : Scratch(p.scratch), problem(p) {
        leaf = take(l * PTp);
        u = take(size_t(2) * S * l * Ap);
        inverse = take(size_t(2) * S * l * Ap);
        rows_BD = take(A * whole_lines(2 * S));
        of_word = take(size_t(2) * S * l * Sp);
        of_parent = take(size_t(2) * S * S * Ap);
        Rt = take(size_t(2 * l) * BC * Ap);
        Et = take(size_t(l) * l * A * Ap);
        Tt = take(size_t(2 * l) * S * Ap);
        tile = take(PT * Ap);
        p_C = take(S * kVector);
        if (!outside) return;
        R = take(size_t(2 * l) * BC * A);
        if (!gradients) return;
        dRt = take(size_t(2 * l) * BC * Ap);
        d_tile = take(S * Ap);
        tile_t = take(A * PTp);
        d_rows = take(l * Sp);
        du = take(size_t(2) * S * Ap * l);
        dEt = take(size_t(l) * l * A * Ap);
        dTt = take(size_t(2 * l) * S * Ap);
        d_leaf = take(l * PTp);
    }

    const Problem& problem;
    const int l = problem.length, A = problem.A, PT = problem.PT, S = A + PT;
    const int Ap = whole_lines(A), PTp = whole_lines(PT), Sp = whole_lines(S), BC = A * Ap;
    const bool gradients = problem.d_word_C, outside = gradients || problem.arcs;

    Real* leaf;                      // [q][Cp], p(w_q | C) of preterminals, scaled by the chart
    Real *R, *Rt;                    // [D][p][A][B][Cp], [D][p][B][Cp][Ap]   nonterminals B and C
    Real* Et;                        // [p][q][B][Ap]   sum over preterminals C of rule times leaf; p and q imply D
    Real* Tt;                        // [D][p][C][Ap]   sum over preterminals B
    Real *dRt, *dEt, *dTt, *d_leaf;  // zero at the start of the outside pass

    size_t at(int D, int p) const { return D * l + p; }
    Real* R_at(int D, int p) const { return R + at(D, p) * BC * A; }
    Real* Rt_at(int D, int p) const { return Rt + at(D, p) * BC * Ap; }
    Real* dRt_at(int D, int p) const { return dRt + at(D, p) * BC * Ap; }
    size_t E_at(int p, int q) const { return (size_t(p) * l + q) * A * Ap; }  // in Et and dEt
    size_t T_at(int D, int p) const { return at(D, p) * S * Ap; }             // in Tt and dTt
    // the words on the side of the child
    Range child_words(int D, int p) const { return D == LEFT ? Range{p + 1, l - 1} : Range{0, p - 1}; }

    void compute_rules() const {
        compute_u();
        for (int D = LEFT; D <= RIGHT; D++)
            for (int B = 0; B < S; B++) {
                scale_parent(D, B);
                for (int p = 0; p < l; p++) {
                    scale_word(D, B, p);
                    for (int a = 0; a < Ap; a += kVector)
                        *(Vector*)(inverse + u_at(D, B, p) + a) = inverse_sum(D, B, p, a);
                    if (B < A) rules_of_phrase(D, B, p);
                    else rules_of_word(D, B, p);
                }
            }
    }

    // from the gradients of R, E and T to those of the factors
    void derive_rules() const {
        for (int D = LEFT; D <= RIGHT; D++)
            for (int B = 0; B < S; B++) {
                std::memset(d_parent_at(D, B), 0, S * Ap * sizeof(Real));
                std::memset(d_rows, 0, l * Sp * sizeof(Real));
                if (B < A) derive_rules_of_phrase(D, B);
                else derive_rules_of_word(D, B);
                for (int p = 0; p < l; p++)
                    std::memcpy(problem.d_word_C + word_at(D, B, p), d_rows + p * Sp, S * sizeof(Real));
            }
        for (int p = 0; p < l; p++) {
            const int DB = 2 * S, padded = whole_lines(DB);
            transpose(du + u_at(LEFT, 0, p), Ap, DB, A, rows_BD, padded);
            for (int a = 0; a < A; a++)
                std::memcpy(problem.d_logp_BD_Aw + (size_t(p) * A + a) * DB, rows_BD + a * padded, DB * sizeof(Real));
        }
    }

  private:
    Real *u, *du;     // [p][D][B][Ap]
    Real* inverse;    // [p][D][B][Ap]   of the sum over C of of_word of_parent; vectors of 0 where it is too small
    Real* of_word;    // [D][B][p][Cp]   exp(word_C), with the largest C at 2^kHalf
    Real* of_parent;  // [D][B][C][Ap]   exp(parent_C), the same
    Real *tile, *p_C, *d_tile, *tile_t;  // of one head: [C][Ap], [C][vector], [C][Ap], [A][Cp]
    Real *rows_BD, *d_rows;              // [A][D B padded]; [p][Cp]

    // p(C | A, B, D, w_p) is a product of the two exponentials, divided by its sum. Where that sum is below 2^kHalf,
    // the largest terms of word and parent are far apart, and the product may have lost probabilities that a number can
    // hold: then, and only then, the exponential of the sum of the logarithms is computed.
    static constexpr int kHalf = sizeof(Real) == sizeof(float) ? 50 : 400;

    size_t factor_at(int D, int B) const { return D * S + B; }
    size_t u_at(int D, int B, int p) const { return (size_t(p) * 2 * S + factor_at(D, B)) * Ap; }
    const Real* parent_at(int D, int B) const { return problem.parent_C + factor_at(D, B) * S * Ap; }
    Real* d_parent_at(int D, int B) const { return problem.d_parent_C + factor_at(D, B) * S * Ap; }
    size_t word_at(int D, int B, int p) const { return (size_t(p) * 2 * S + factor_at(D, B)) * S; }

    // 2^kHalf exp(x - peak), as the square of its root: exp_of would be 0 where this is not yet
    NBL_INLINE static Vector scaled_exp(Vector x, Vector peak) {
        const Vector root = exp_of(Real(0.5) * (x - peak)) * power_of_two(kHalf / 2);
        return root * root;
    }
    NBL_INLINE static Vector finite(Vector peak) { return peak > Real(-INFINITY) ? peak : Vector{}; }

    void compute_u() const {
        for (int p = 0; p < l; p++) {
            const int DB = 2 * S, padded = whole_lines(DB);
            for (int a = 0; a < A; a++)
                std::memcpy(rows_BD + a * padded, problem.logp_BD_Aw + (size_t(p) * A + a) * DB, DB * sizeof(Real));
            Real* const probs = u + u_at(LEFT, 0, p);
            transpose(rows_BD, padded, A, DB, probs, Ap);
            for (int n = 0; n < DB * Ap; n += kVector) *(Vector*)(probs + n) = exp_of(*(Vector*)(probs + n));
            for (int n = 0; n < DB; n++) std::fill(probs + n * Ap + A, probs + (n + 1) * Ap, Real(0));
        }
    }
    void scale_word(int D, int B, int p) const {
        Real* const word = of_word + (factor_at(D, B) * l + p) * Sp;
        std::memcpy(word, problem.word_C + word_at(D, B, p), S * sizeof(Real));
        std::fill(word + S, word + Sp, Real(-INFINITY));
        Vector peaks = *(const Vector*)word;
        for (int c = kVector; c < Sp; c += kVector) peaks = larger(peaks, *(const Vector*)(word + c));
        Real peak = peaks[0];
        for (int k = 1; k < kVector; k++) peak = peak > peaks[k] ? peak : peaks[k];
        for (int c = 0; c < Sp; c += kVector)
            *(Vector*)(word + c) = scaled_exp(*(Vector*)(word + c), finite(Vector{} + peak));
    }
    void scale_parent(int D, int B) const {
        const Real* const logit = parent_at(D, B);
        Real* const parent = of_parent + factor_at(D, B) * S * Ap;
        for (int a = 0; a < Ap; a += kVector) {
            Vector peak = *(const Vector*)(logit + a);
            for (int c = 1; c < S; c++) peak = larger(peak, *(const Vector*)(logit + c * Ap + a));
            for (int c = 0; c < S; c++)
                *(Vector*)(parent + c * Ap + a) = scaled_exp(*(const Vector*)(logit + c * Ap + a), finite(peak));
        }
    }
    NBL_INLINE static Vector larger(Vector x, Vector y) { return x > y ? x : y; }

    // Below, the pointers and sizes of loops are local constants: for all that the compiler knows, a vector that is
    // stored may overwrite a member.

    // f(c, n) for all c; sums should be n of four: one would be a chain of dependent additions
    template <class F> NBL_INLINE static void by_four(int S, F f) {
        int c = 0;
        for (; c + 4 <= S; c += 4) each<4>([&](int n) __attribute__((always_inline)) { f(c + n, n); });
        for (; c < S; c++) f(c, 0);
    }
    // c -> of_word[c] of_parent[c], for the A of one vector, from a on
    NBL_INLINE auto products(int D, int B, int p, int a) const {
        const Real* const word = of_word + (factor_at(D, B) * l + p) * Sp;
        const Real* const parent = of_parent + factor_at(D, B) * S * Ap + a;
        return [word, parent, step = Ap](int c) __attribute__((always_inline)) {
            return word[c] * *(const Vector*)(parent + c * step);
        };
    }
    Vector inverse_sum(int D, int B, int p, int a) const {
        const auto product = products(D, B, p, a);
        Vector sums[4] = {};
        by_four(S, [&](int c, int n) __attribute__((always_inline)) { sums[n] += product(c); });
        const Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int k = 0; k < kVector; k++)
            if (!(sum[k] >= power_of_two(kHalf))) return Vector{};
        return Real(1) / sum;
    }

    // p(C | A, B, D, w_p) for the A of one vector, [C]
    const Vector* children(int D, int B, int p, int a) const {
        const Vector factor = *(const Vector*)(inverse + u_at(D, B, p) + a);
        Vector* const out = (Vector*)p_C;
        if (factor[0] > 0) {
            const auto product = products(D, B, p, a);
            for (int c = 0, S = this->S; c < S; c++) out[c] = product(c) * factor;
        } else compute_exactly(D, B, p, a, out);
        return out;
    }
    void compute_exactly(int D, int B, int p, int a, Vector* out) const {
        const Real *const word = problem.word_C + word_at(D, B, p), *const parent = parent_at(D, B) + a;
        const auto logit = [word, parent, step = Ap](int c) { return word[c] + *(const Vector*)(parent + c * step); };
        const int S = this->S;
        Vector peak = logit(0), total = {};
        for (int c = 1; c < S; c++) peak = larger(peak, logit(c));
        for (int c = 0; c < S; c++) total += out[c] = exp_of(logit(c) - finite(peak));
        const Vector factor = total > 0 ? Real(1) / total : Vector{};  // no child is possible: no rule
        for (int c = 0; c < S; c++) out[c] *= factor;
    }

    // the rules with a nonterminal head child
    void rules_of_phrase(int D, int B, int p) const {
        Real *const phrases = Rt_at(D, p) + B * Ap * Ap, *const words = tile;
        for (int a = 0, A = this->A, S = this->S, Ap = this->Ap; a < Ap; a += kVector) {
            const Vector *const p_C = children(D, B, p, a), prob = *(const Vector*)(u + u_at(D, B, p) + a);
            for (int c = 0; c < A; c++) *(Vector*)(phrases + c * Ap + a) = prob * p_C[c];
            for (int c = A; c < S; c++) *(Vector*)(words + (c - A) * Ap + a) = prob * p_C[c];
        }
        std::memset(phrases + A * Ap, 0, (Ap - A) * Ap * sizeof(Real));
        if (outside) transpose(phrases, Ap, A, A, R_at(D, p) + B * Ap, BC);
        const Range range = child_words(D, p);
        gemm(
            false, range.size(), Ap, PT, [&](int m) { return leaf + (range.first + m) * PTp; }, 1, tile, Ap,
            [&](int m) { return Et + E_at(p, range.first + m) + B * Ap; });
    }

    // those with a preterminal
    void rules_of_word(int D, int B, int p) const {
        Real* const sums = Tt + T_at(D, p);
        if (B == A) std::memset(sums, 0, S * Ap * sizeof(Real));
        for (int a = 0, S = this->S, Ap = this->Ap; a < Ap; a += kVector) {
            const Vector *const p_C = children(D, B, p, a), prob = *(const Vector*)(u + u_at(D, B, p) + a);
            for (int c = 0; c < S; c++) *(Vector*)(sums + c * Ap + a) += prob * p_C[c];
        }
    }

    void derive_rules_of_phrase(int D, int B) const {
        for (int p = 0; p < l; p++) {
            const Real* const d_rules = d_rules_of_phrase(D, B, p);
            for (int a = 0; a < Ap; a += kVector) {
                const Vector* const p_C = derive_column(D, B, p, a, d_rules + a);
                transpose((const Real*)(p_C + A), kVector, PT, min(kVector, A - a), tile_t + a * PTp, PTp);
            }
            derive_leaves(D, B, p);
        }
    }
    // one vector of A after the other, so that all but d_rules stays in the first cache
    void derive_rules_of_word(int D, int B) const {
        for (int a = 0; a < Ap; a += kVector)
            for (int p = 0; p < l; p++) derive_column(D, B, p, a, dTt + T_at(D, p) + a);
    }
    const Vector* derive_column(int D, int B, int p, int a, const Real* d_rules) const {
        const Column it = derive_prob(D, B, p, a, d_rules);
        Real *const d_parent = d_parent_at(D, B) + a, *const d_row = d_rows + p * Sp;
        int c = 0;
        for (; c + kVector <= S; c += kVector) derive_logits<kVector>(it, c, kVector, d_parent, d_row);
        if (c < S) derive_logits<0>(it, c, S - c, d_parent, d_row);
        return it.p_C;
    }

    // of one vector of A
    struct Column {
        const Vector* p_C;    // [C], p(C | A, B, D, w_p)
        const Real* d_rules;  // [C], Ap apart
        Vector prob, d_prob;  // u, and sum_C rule d_rule
    };
    Column derive_prob(int D, int B, int p, int a, const Real* d_rules) const {
        const Vector *const p_C = children(D, B, p, a), prob = *(const Vector*)(u + u_at(D, B, p) + a);
        Vector sums[4] = {};
        by_four(S, [&, step = Ap](int c, int n) __attribute__((always_inline)) {
            sums[n] += p_C[c] * *(const Vector*)(d_rules + c * step);
        });
        const Vector d_prob = prob * ((sums[0] + sums[1]) + (sums[2] + sums[3]));
        *(Vector*)(du + u_at(D, B, p) + a) = d_prob;
        return {p_C, d_rules, prob, d_prob};
    }
    // d logit[A, C] = p(C | A) (u d_rule - sum_C rule d_rule) of n symbols from c on, known as N if not 0; wanted are
    // its sums over words and over A
    template <int N> void derive_logits(const Column& it, int c, int n, Real* d_parent, Real* d_row) const {
        Vector d[kVector] = {};
        const auto derive = [&, step = Ap](int k) __attribute__((always_inline)) {
            d[k] = it.p_C[c + k] * (it.prob * *(const Vector*)(it.d_rules + (c + k) * step) - it.d_prob);
            *(Vector*)(d_parent + (c + k) * step) += d[k];
        };
        if constexpr (N > 0) each<N>(derive);
        else
            for (int k = 0; k < n; k++) derive(k);
        *(Vector*)(d_row + c) += lane_sums(d);
    }

    const Real* d_rules_of_phrase(int D, int B, int p) const {
        const Real* const phrases = dRt_at(D, p) + B * Ap * Ap;
        for (int n = 0; n < A * Ap; n += kVector) *(Vector*)(d_tile + n) = bounded(*(const Vector*)(phrases + n));
        const Range words = child_words(D, p);
        if (words.size() == 0) std::memset(d_tile + A * Ap, 0, PT * Ap * sizeof(Real));
        else
            gemm(
                false, PT, Ap, words.size(), [&](int m) { return leaf + words.first * PTp + m; }, PTp,
                dEt + E_at(p, words.first) + B * Ap, A * Ap, [&](int m) { return d_tile + (A + m) * Ap; });
        return d_tile;
    }

    // the gradient of leaf; tile_t holds p(C | A, B, D, w_p)
    void derive_leaves(int D, int B, int p) const {
        const Range words = child_words(D, p);
        for (int a = 0; a < A; a++) multiply(tile_t + a * PTp, PTp, u[u_at(D, B, p) + a]);
        gemm(
            true, words.size(), PTp, A, [&](int m) { return dEt + E_at(p, words.first + m) + B * Ap; }, 1, tile_t, PTp,
            [&](int m) { return d_leaf + (words.first + m) * PTp; });
    }
};
