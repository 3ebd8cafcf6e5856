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

// What Python passes (lexical_native.py), of one sentence. Factors are laid out as in LexicalRules but parent_C, which
// is [D][B][C][A padded to whole lines]. What is not wanted is null; spans and arcs are zero at the start.
struct Problem {
    int64_t length, l, A, PT, legacy;  // words of this sentence; sizes of the axes; repeat the released arcs' errors
    const Real *logp_A_S, *logp_w_X, *logp_BD_Aw, *parent_C, *word_C;
    Real* log_prob;
    Real *d_logp_A_S, *d_logp_w_X, *d_logp_BD_Aw, *d_parent_C, *d_word_C;
    Real *spans, *arcs;
    Real* scratch;
};

// Large but finite: such gradients belong to values that are 0 or nearly so, and 0 * inf would not be 0.
constexpr Real kBound = sizeof(Real) == sizeof(float) ? 0x1p112 : 0x1p896;
inline Real bounded(Real gradient) { return gradient > kBound ? kBound : gradient; }
NBL_INLINE Vector bounded(Vector gradient) { return gradient > kBound ? Vector{} + kBound : gradient; }

class Heads : public Scratch {
  protected:
    explicit Heads(const Problem& p) : Scratch(p.scratch), problem(p) {
        leaf = take(l * PTp);
        u = take(size_t(2) * S * l * Ap);
        of_word = take(size_t(2) * S * l * Sp);
        of_parent = take(size_t(2) * S * S * Ap);
        Rt = take(size_t(2 * l) * BC * Ap);
        Et = take(size_t(l) * l * A * Ap);
        Tt = take(size_t(2 * l) * S * Ap);
        tile = take(S * Ap);
        exact = take(S * kVector);
        if (!outside) return;
        R = take(size_t(2 * l) * BC * A);
        if (!gradients) return;
        dRt = take(size_t(2 * l) * BC * Ap);
        d_tile = take(S * Ap);
        tile_t = take(A * PTp);
        d_row = take(Sp);
        d_prob = take(Ap);
        dEt = take(size_t(l) * l * A * Ap);
        dTt = take(size_t(2 * l) * S * Ap);
        d_leaf = take(l * PTp);
    }

    const Problem& problem;
    const int l = problem.length, A = problem.A, PT = problem.PT, S = A + PT;
    const int Ap = whole_lines(A), PTp = whole_lines(PT), Sp = whole_lines(S), BC = A * Ap;
    const bool gradients = problem.d_word_C, outside = gradients || problem.arcs;

    Real* leaf;                // [q][Cp], p(w_q | C) of preterminals, scaled by the chart
    Real *R, *Rt;              // [D][p][A][B][Cp], [D][p][B][Cp][Ap]   nonterminals B and C
    Real* Et;                  // [p][q][B][Ap]   sum over preterminals C of rule times leaf; D follows from p and q
    Real* Tt;                  // [D][p][C][Ap]   sum over preterminals B
    Real *dRt, *dEt, *dTt, *d_leaf;  // dRt is written by the chart, the others are zero at the start

    size_t at(int D, int p) const { return D * l + p; }
    Real* R_at(int D, int p) const { return R + at(D, p) * BC * A; }
    Real* Rt_at(int D, int p) const { return Rt + at(D, p) * BC * Ap; }
    Real* dRt_at(int D, int p) const { return dRt + at(D, p) * BC * Ap; }
    size_t E_at(int p, int q) const { return (size_t(p) * l + q) * A * Ap; }  // in Et and dEt
    size_t T_at(int D, int p) const { return at(D, p) * S * Ap; }             // in Tt and dTt
    // the words on the side of the child
    Range children(int D, int p) const { return D == LEFT ? Range{p + 1, l - 1} : Range{0, p - 1}; }

    void compute_rules() const {
        compute_factors();
        for (int D = LEFT; D <= RIGHT; D++)
            for (int B = 0; B < S; B++)
                for (int p = 0; p < l; p++) {
                    if (B < A) rules_of_phrase(D, B, p);
                    else rules_of_word(D, B, p);
                }
    }

    // from the gradients of R, E and T to those of the factors
    void derive_rules() const {
        for (int D = LEFT; D <= RIGHT; D++)
            for (int B = 0; B < S; B++) {
                std::memset(d_parent_at(D, B), 0, S * Ap * sizeof(Real));
                for (int p = 0; p < l; p++) derive_rules(D, B, p);
            }
    }

  private:
    Real* u;          // [D][B][p][Ap]
    Real* of_word;    // [D][B][p][Cp]   exp(word_C), with the largest C at 2^kHalf
    Real* of_parent;  // [D][B][C][Ap]   exp(parent_C), the same
    Real *tile, *exact, *d_tile, *tile_t, *d_row, *d_prob;  // [C][Ap], [C][kVector], [C][Ap], [A][Cp], [Cp] and [Ap]

    // p(C | A, B, D, w_p) is a product of the two exponentials, divided by its sum. Where that sum is below 2^kHalf, the
    // largest terms of word and parent are far apart, and the product may have lost small probabilities: then, and only
    // then, the exponential of the sum of the logarithms is computed.
    static constexpr int kHalf = sizeof(Real) == sizeof(float) ? 50 : 400;

    size_t factor_at(int D, int B) const { return D * S + B; }
    const Real* u_at(int D, int B, int p) const { return u + (factor_at(D, B) * l + p) * Ap; }
    const Real* parent_at(int D, int B) const { return problem.parent_C + factor_at(D, B) * S * Ap; }
    Real* d_parent_at(int D, int B) const { return problem.d_parent_C + factor_at(D, B) * S * Ap; }
    size_t word_at(int D, int B, int p) const { return (size_t(p) * 2 * S + factor_at(D, B)) * S; }
    size_t BD_at(int D, int B, int p, int a) const { return (size_t(p) * A + a) * 2 * S + factor_at(D, B); }

    // exp(x - peak), with the peak at 2^kHalf: the root of it twice, so that it reaches as far below 1 as above
    NBL_INLINE static Vector scaled_exp(Vector x, Vector peak) {
        const Vector root = exp_of(Real(0.5) * (x - peak)) * power_of_two(kHalf / 2);
        return root * root;
    }
    NBL_INLINE static Vector finite(Vector peak) { return peak > Real(-INFINITY) ? peak : Vector{}; }

    void compute_factors() const {
        for (int D = LEFT; D <= RIGHT; D++)
            for (int B = 0; B < S; B++) {
                for (int p = 0; p < l; p++) {
                    Real* const prob = u + (factor_at(D, B) * l + p) * Ap;
                    for (int a = 0; a < Ap; a++) prob[a] = a < A ? problem.logp_BD_Aw[BD_at(D, B, p, a)] : -INFINITY;
                    for (int a = 0; a < Ap; a += kVector) *(Vector*)(prob + a) = exp_of(*(Vector*)(prob + a));
                    Real* const word = of_word + (factor_at(D, B) * l + p) * Sp;
                    std::memcpy(word, problem.word_C + word_at(D, B, p), S * sizeof(Real));
                    const Real peak = *std::max_element(word, word + S);
                    std::fill(word + S, word + Sp, Real(-INFINITY));
                    for (int c = 0; c < Sp; c += kVector)
                        *(Vector*)(word + c) = scaled_exp(*(Vector*)(word + c), finite(Vector{} + peak));
                }
                const Real* const logit = parent_at(D, B);
                Real* const parent = of_parent + factor_at(D, B) * S * Ap;
                for (int a = 0; a < Ap; a += kVector) {
                    Vector peak = *(const Vector*)(logit + a);
                    for (int c = 1; c < S; c++) peak = larger(peak, *(const Vector*)(logit + c * Ap + a));
                    for (int c = 0; c < S; c++)
                        *(Vector*)(parent + c * Ap + a) = scaled_exp(*(const Vector*)(logit + c * Ap + a), finite(peak));
                }
            }
    }
    NBL_INLINE static Vector larger(Vector x, Vector y) { return x > y ? x : y; }

    // use(c, n, p(c | A, B, D, w_p)) for all C, and for the A of one vector, from a on; n is c modulo 4.
    template <class F> NBL_INLINE void each_child(int D, int B, int p, int a, F use) const {
        const Real* const word = of_word + (factor_at(D, B) * l + p) * Sp;
        const Real* const parent = of_parent + factor_at(D, B) * S * Ap + a;
        const auto product = [&](int c) __attribute__((always_inline)) { return word[c] * *(const Vector*)(parent + c * Ap); };
        Vector sums[4] = {};  // one would be a chain of dependent additions
        by_four([&](int c, int n) __attribute__((always_inline)) { sums[n] += product(c); });
        const Vector total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        bool is_safe = true;
        for (int k = 0; k < kVector; k++) is_safe &= total[k] >= power_of_two(kHalf);
        if (is_safe) {
            const Vector inverse = Real(1) / total;
            by_four([&](int c, int n) __attribute__((always_inline)) { use(c, n, product(c) * inverse); });
        } else {
            const Real* const exact = exact_children(D, B, p, a);
            for (int c = 0; c < S; c++) use(c, 0, *(const Vector*)(exact + c * kVector));
        }
    }
    template <class F> NBL_INLINE void by_four(F f) const {
        int c = 0;
        for (; c + 4 <= S; c += 4) each<4>([&](int n) __attribute__((always_inline)) { f(c + n, n); });
        for (; c < S; c++) f(c, 0);
    }
    __attribute__((noinline)) const Real* exact_children(int D, int B, int p, int a) const {
        const Real *const word = problem.word_C + word_at(D, B, p), *const parent = parent_at(D, B) + a;
        Vector peak = Vector{} - Real(INFINITY), total = {};
        const auto logit = [&](int c) { return word[c] + *(const Vector*)(parent + c * Ap); };
        const auto out = [&](int c) { return (Vector*)(exact + c * kVector); };
        for (int c = 0; c < S; c++) peak = larger(peak, logit(c));
        for (int c = 0; c < S; c++) total += *out(c) = exp_of(logit(c) - finite(peak));
        const Vector inverse = total > 0 ? Real(1) / total : Vector{};  // no child is possible: no rule
        for (int c = 0; c < S; c++) *out(c) *= inverse;
        return exact;
    }

    // the rules with a nonterminal head child
    void rules_of_phrase(int D, int B, int p) const {
        Real* const phrases = Rt_at(D, p) + B * Ap * Ap;
        for (int a = 0; a < Ap; a += kVector) {
            const Vector prob = *(const Vector*)(u_at(D, B, p) + a);
            each_child(D, B, p, a, [&](int c, int, Vector p_C) __attribute__((always_inline)) {
                *(Vector*)((c < A ? phrases + c * Ap : tile + (c - A) * Ap) + a) = prob * p_C;
            });
        }
        std::memset(phrases + A * Ap, 0, (Ap - A) * Ap * sizeof(Real));
        if (outside) transpose(phrases, Ap, A, A, R_at(D, p) + B * Ap, BC);
        const Range words = children(D, p);
        gemm(
            false, words.size(), Ap, PT, [&](int m) { return leaf + (words.first + m) * PTp; }, 1, tile, Ap,
            [&](int m) { return Et + E_at(p, words.first + m) + B * Ap; });
    }

    // those with a preterminal
    void rules_of_word(int D, int B, int p) const {
        Real* const sums = Tt + T_at(D, p);
        for (int a = 0; a < Ap; a += kVector) {
            const Vector prob = *(const Vector*)(u_at(D, B, p) + a);
            each_child(D, B, p, a, [&](int c, int, Vector p_C) __attribute__((always_inline)) {
                Vector& sum = *(Vector*)(sums + c * Ap + a);
                sum = B == A ? prob * p_C : sum + prob * p_C;
            });
        }
    }

    void derive_rules(int D, int B, int p) const {
        const Real *const d_rule = B < A ? d_rules_of_phrase(D, B, p) : dTt + T_at(D, p), *const prob = u_at(D, B, p);
        for (int a = 0; a < Ap; a += kVector) {
            Vector sums[4] = {};
            each_child(D, B, p, a, [&](int c, int n, Vector p_C) __attribute__((always_inline)) {
                *(Vector*)(tile + c * Ap + a) = p_C;
                sums[n] += p_C * *(const Vector*)(d_rule + c * Ap + a);
            });
            *(Vector*)(d_prob + a) = *(const Vector*)(prob + a) * ((sums[0] + sums[1]) + (sums[2] + sums[3]));
        }
        for (int a = 0; a < A; a++) problem.d_logp_BD_Aw[BD_at(D, B, p, a)] = d_prob[a];
        derive_logits(d_rule, prob, d_parent_at(D, B), problem.d_word_C + word_at(D, B, p));
        if (B < A) derive_leaves(D, B, p);
    }

    // d logit[A, C] = p(C | A) (u d_rule - sum_C rule d_rule), whose sums over words and over A are wanted
    void derive_logits(const Real* d_rule, const Real* prob, Real* d_parent, Real* d_word) const {
        for (int c = 0; c < S; c += kVector) {
            Vector of_word[kVector];
            for (int k = 0; k < kVector; k++) {
                of_word[k] = Vector{};
                if (c + k < S)
                    for (int a = 0; a < Ap; a += kVector) {
                        const int n = (c + k) * Ap + a;
                        const Vector p_C = *(const Vector*)(tile + n), d_p = *(const Vector*)(d_prob + a);
                        const Vector d = p_C * (*(const Vector*)(prob + a) * *(const Vector*)(d_rule + n) - d_p);
                        *(Vector*)(d_parent + n) += d;
                        of_word[k] += d;
                    }
            }
            *(Vector*)(d_row + c) = lane_sums(of_word);
        }
        std::memcpy(d_word, d_row, S * sizeof(Real));
    }

    const Real* d_rules_of_phrase(int D, int B, int p) const {
        const Real* const phrases = dRt_at(D, p) + B * Ap * Ap;
        for (int n = 0; n < A * Ap; n += kVector) *(Vector*)(d_tile + n) = bounded(*(const Vector*)(phrases + n));
        const Range words = children(D, p);
        if (words.size() == 0) std::memset(d_tile + A * Ap, 0, PT * Ap * sizeof(Real));
        else
            gemm(
                false, PT, Ap, words.size(), [&](int m) { return leaf + words.first * PTp + m; }, PTp,
                dEt + E_at(p, words.first) + B * Ap, A * Ap, [&](int m) { return d_tile + (A + m) * Ap; });
        return d_tile;
    }

    // the gradient of leaf; tile holds p(C | A, B, D, w_p)
    void derive_leaves(int D, int B, int p) const {
        const Range words = children(D, p);
        transpose(tile + A * Ap, Ap, PT, A, tile_t, PTp);
        for (int a = 0; a < A; a++) multiply(tile_t + a * PTp, PTp, u_at(D, B, p)[a]);
        gemm(
            true, words.size(), PTp, A, [&](int m) { return dEt + E_at(p, words.first + m) + B * Ap; }, 1, tile_t, PTp,
            [&](int m) { return d_leaf + (words.first + m) * PTp; });
    }
};
