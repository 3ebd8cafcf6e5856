// The most probable tree of the NBL-PCFG, on the CPU: the rules with H summed out, and the chart.
//
// The recursions and all names are those of nbl/decode/cyk_bilexical.py: read that first.

#include "exponential.h"
#include "scaled_chart.h"

#include <cmath>

namespace {

typedef Real Unaligned __attribute__((vector_size(kVectorBytes), may_alias, aligned(sizeof(Real))));

constexpr int kPairs = 4;                                   // words q whose rules are contracted at a time
constexpr int kExponent = sizeof(Real) == 4 ? 80 : 800;     // probabilities times 2^kExponent: room for small ones
constexpr int kRows = 32;                                   // rows of R that stay in the cache for many spans
constexpr int kSums = kVectorBytes == kLineBytes ? 16 : 8;  // vectors of maxima that registers hold

NBL_INLINE Vector larger(Vector a, Vector b) { return a > b ? a : b; }

// p(B | H) p(C | H) for D and one class of B and of C
struct Block {
    int64_t D, B_T, C_T, B, C;  // B, C: how many symbols
    const Real *p_BC_H, *logp_H;
};

// What Python passes for the rules of one head
struct Head {
    int64_t p, l, A, H, D_w, row, blocks;  // row: numbers from one C to the next in R
    const Block* block;
    const Real *H_Aw, *w_H;  // [A][H] of this head, [q][D][H]
    Real* R;                 // [q][C][B][A], of this head
    Real* scratch;
};

class Rules : public Scratch {
  public:
    explicit Rules(const Head& head) : Scratch(head.scratch), head(head) {
        int most = 0;
        for (int n = 0; n < head.blocks; n++) most = max(most, head.block[n].B * head.block[n].C);
        Wt = take(H * Ap);
        p_H = take(H * kPairs * Ap);
        rule = take(size_t(most) * kPairs * Ap);
        scale = take(kPairs * Ap);
        line = take(head.row + Ap);
    }

    void solve() const {
        for (int h = 0; h < H; h++)
            for (int a = 0; a < Ap; a++) Wt[h * Ap + a] = a < A ? head.H_Aw[a * H + h] : -INFINITY;
        for (int q = 0; q < head.l; q++)  // what no block writes
            for (int c = 0; c <= A; c++) {
                Real* const rules = head.R + (q * (A + 1) + c) * head.row;
                for (int n = q == head.p ? 0 : A * A; n < head.row; n++) rules[n] = -INFINITY;
            }
        for (int n = 0; n < head.blocks; n++) {
            const Block& block = head.block[n];
            const int p = head.p, l = head.l;
            Range q = block.D == LEFT ? Range{p + 1, l - 1} : Range{0, p - 1};
            if (block.B_T && block.C_T)  // both children are words, so they are neighbours
                q = block.D == LEFT ? Range{p + 1, min(p + 1, l - 1)} : Range{max(p - 1, 0), p - 1};
            for (; q.size() > 0; q.first += kPairs) contract(block, q.first, min(kPairs, q.size()));
        }
    }

  private:
    const Head& head;
    const int A = head.A, H = head.H, Ap = whole_lines(A);
    Real *Wt, *p_H, *rule, *scale, *line;

    // log p(B, C, D, w_q | A, w_p) for some q; of the preterminals only the best is kept
    void contract(const Block& block, int first, int pairs) const {
        const int columns = pairs * Ap, B = block.B, C = block.C;
        for (int pair = 0; pair < pairs; pair++)
            for (int a = 0; a < Ap; a += kVector) {
                const Real* const w = head.w_H + ((first + pair) * head.D_w + block.D % head.D_w) * H;
                const auto logp = [&](int h) { return *(const Vector*)(Wt + h * Ap + a) + w[h] + block.logp_H[h]; };
                Vector peak = Vector{} - INFINITY;
                for (int h = 0; h < H; h++) peak = larger(logp(h), peak);
                peak = peak == -INFINITY ? Vector{} : peak;
                *(Vector*)(scale + pair * Ap + a) = peak;
                for (int h = 0; h < H; h++)
                    *(Vector*)(p_H + h * columns + pair * Ap + a) = exp_of<kExponent>(logp(h) - peak);
            }
        gemm(false, C * B, columns, H, Rows{(Real*)block.p_BC_H, H}, 1, p_H, columns, Rows{rule, columns});
        if (block.C_T) keep_best(rule, C, B * columns, B * columns);
        const int rows_C = block.C_T ? 1 : C, rows_B = block.B_T ? 1 : B;
        for (int c = 0; c < rows_C; c++) {
            if (block.B_T) keep_best(rule + c * B * columns, B, columns, columns);
            for (int pair = 0; pair < pairs; pair++) {
                for (int b = 0; b < rows_B; b++)
                    for (int a = 0; a < Ap; a += kVector) {
                        const Vector p = *(const Vector*)(rule + (c * B + b) * columns + pair * Ap + a);
                        const Vector scales = *(const Vector*)(scale + pair * Ap + a);
                        *(Unaligned*)(line + b * A + a) = log_of<kExponent>(p) + scales;
                    }
                Real* const out = head.R + ((first + pair) * (A + 1) + (block.C_T ? A : c)) * head.row;
                std::memcpy(out + (block.B_T ? A * A : 0), line, rows_B * A * sizeof(Real));
            }
        }
    }

    // the maximum of n rows, a step apart, in the place of the first
    static void keep_best(Real* rows, int n, int step, int size) {
        for (int k = 0; k < size; k += kVector) {
            Vector best = *(const Vector*)(rows + k);
            for (int m = 1; m < n; m++) best = larger(best, *(const Vector*)(rows + m * step + k));
            *(Vector*)(rows + k) = best;
        }
    }
};

// What Python passes for the chart of a sentence
struct Sentence {
    int64_t l, A, row;
    const Real* R;  // [p][q][C][B][A]
    Real* s;        // [j][i][p][X], for each j as many i and p; -inf at the start
    Real* scratch;
};

class Chart : public Scratch {
  public:
    explicit Chart(const Sentence& sentence) : Scratch(sentence.scratch), sentence(sentence) {
        hook = take(row + Ap);
        hooks = take(hooks_before(l + 1) * row + Ap);
    }

    void solve() const {
        for (int j = 1; j <= l; j++) {
            s_at(j, j - 1, j - 1)[A] = 0;
            for (int k = j - 1; k >= 0; k--) {
                // all that [k, j) is made of has been seen: pass it on to wider spans that end in j
                for (int p = k; p < j; p++)  // as the head child of [i, j)
                    for (int i = 0; i < k; i++) improve(s_at(j, i, p), s_at(j, k, p), hook_at(k, p, i));
                for (int p = 0; p < k; p++) {  // as the other child
                    clear(hook);
                    improve(hook, s_at(j, k, k), R_at(p, k), (j - k) * (A + 1));
                    for (int i = 0; i <= p; i++) improve(s_at(j, i, p), s_at(k, i, p), hook);
                }
            }
            for (int p = j; p < l; p++) {
                for (int i = 0; i < j; i++) clear(hook_at(j, p, i));
                for (int first = 0, end = j * (A + 1); first < end; first += kRows)
                    for (int i = 0; i < j; i++) {
                        const int begin = max(first, i * (A + 1)), n = min(first + kRows, end) - begin;
                        improve(hook_at(j, p, i), s_at(j, i, 0) + begin, R_at(p, 0) + begin * row, n);
                    }
            }
        }
    }

  private:
    const Sentence& sentence;
    const int l = sentence.l, A = sentence.A, row = sentence.row, Ap = whole_lines(A);
    Real *hook, *hooks;

    Real* s_at(int j, int i, int p) const {
        return sentence.s + (size_t(j) * (j - 1) * (2 * j - 1) / 6 + size_t(i) * j + p) * (A + 1);
    }
    const Real* R_at(int p, int q) const { return sentence.R + (size_t(p) * l + q) * (A + 1) * row; }
    // [i, k) as the child of a head p to its right
    size_t hooks_before(int k) const { return size_t(k) * (k - 1) / 2 * l - size_t(k) * (k - 1) * (2 * k - 1) / 6; }
    Real* hook_at(int k, int p, int i) const { return hooks + (hooks_before(k) + size_t(p - k) * k + i) * row; }

    void clear(Real* best) const {
        for (int n = 0; n < row; n++) best[n] = -INFINITY;
    }

    // best[B][A] = max(best, v[r] + M[r]) over n rows
    void improve(Real* best, const Real* v, const Real* M, int n) const {
        if (n <= 0) return;
        for (int first = 0; first < row; first += kSums * kVector)
            with_count<kSums>(min(kSums, (row - first) / kVector), [&](auto N) {
                const auto out = (Vector*)(best + first);
                Vector sum[N];
                each<N>([&](int m) NBL_INLINED { sum[m] = out[m]; });
                const Real* rule = M + first;
                for (int r = 0; r < n; r++, rule += row) {
                    if (v[r] == -INFINITY) continue;  // half of a chart is
                    each<N>([&](int m) NBL_INLINED { sum[m] = larger(v[r] + ((const Vector*)rule)[m], sum[m]); });
                }
                each<N>([&](int m) NBL_INLINED { out[m] = sum[m]; });
            });
    }

    // s[A] = max(s, child[B] + hook[B][A])
    void improve(Real* s, const Real* child, const Real* hook) const {
        for (int a = 0; a < A; a += kVector) {
            Vector best = Vector{} - INFINITY;
            for (int b = 0; b <= A; b++)
                if (child[b] != -INFINITY) best = larger(child[b] + *(const Unaligned*)(hook + b * A + a), best);
            for (int n = 0; n < min(kVector, A - a); n++) s[a + n] = best[n] > s[a + n] ? best[n] : s[a + n];
        }
    }
};

}  // namespace

extern "C" {

int64_t sizeof_Block() { return sizeof(Block); }
int64_t sizeof_Head() { return sizeof(Head); }
int64_t sizeof_Sentence() { return sizeof(Sentence); }

int64_t rules_bytes(const Head* head) { return Rules(*head).scratch_bytes(); }
void rules(const Head* head) { Rules(*head).solve(); }

int64_t chart_bytes(const Sentence* sentence) { return Chart(*sentence).scratch_bytes(); }
void chart(const Sentence* sentence) { Chart(*sentence).solve(); }
}
