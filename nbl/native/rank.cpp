// The recursions of TN-PCFG: log Z, expected counts of rules, posteriors of spans.
//
// The recursions and all names are those of inside/rank: read that first. The rules are shared by the batch and too large
// for the nearer caches: sentences are worked on in groups, so that a table serves all spans of a width of a group.
// The steps are those of inside/pcfg/native.py.

#include "rules.h"

#include <algorithm>

namespace {

constexpr int kGroup = 4;   // sentences
constexpr int kChunk = 96;  // rows that a product for the gradient of the rules has at least, but at the end

// What Python passes (inside/pcfg/native.py). The last line is memory: what outlives `inside`, what outlives `outside`.
struct Problem {
    int64_t item, items, b, l, A, PT, n_roots, R;
    const int64_t *lengths, *order;  // the sentences, longest first
    const Real *logp_A_S, *logp_R_A, *logp_B_R, *logp_C_R, *logp_w_T;
    Real* log_Z;
    const Real* weight;  // d loss / d log_Z; null where gradients are not wanted
    Real *d_logp_A_S, *d_logp_R_A, *d_logp_B_R, *d_logp_C_R, *d_logp_w_T, *spans;
    Real *kept, *counted, *scratch;
};

size_t whole_columns(size_t n) { return (n + kColumns - 1) / kColumns * kColumns; }
// From one row of a chart to the next: an odd number of lines, so that rows spread over the cache
size_t step(size_t n) { return whole_columns(n) + kLine; }

// A right factor of products: [panel][K][kColumns], where the panels make up the N columns
struct Matrix {
    Real* start;
    int K, N;
    static size_t size(size_t K, size_t N) { return K * whole_columns(N); }
    Real* at(int k, int n) const { return start + (size_t(n / kColumns) * K + k) * kColumns + n % kColumns; }

    // C (+)= A times this, for M rows that are a step apart
    void multiply(bool add, int M, const Real* a, size_t a_step, Real* c, size_t c_step) const {
        for (int n = 0; n < N; n += kColumns)
            gemm(
                add, M, kColumns, K, [&](int m) { return (Real*)a + m * a_step; }, 1, at(0, n), kColumns,
                [&](int m) { return c + m * c_step + n; });
    }
    // this += A^T B, for M rows that are a step apart
    void add_product(int M, const Real* a, size_t a_step, const Real* b, size_t b_step) const {
        for (int n = 0; n < N; n += kColumns)
            gemm(
                true, K, kColumns, M, [&](int k) { return (Real*)a + k; }, a_step, b + n, b_step,
                [&](int k) { return at(k, n); });
    }
};

// p(R | A) and, of nonterminals and preterminals, p(B | R) and p(C | R)
struct Tables {
    Matrix R_A, B_R, C_R, B_R_leaf, C_R_leaf;
};

class Batch {
  public:
    explicit Batch(const Problem& p) : problem(p), kept(p.kept), counted(p.counted) {
        tables = take_tables(kept);
        R_At = take(kept, R, A);
        B_Rt = take(kept, A, R);
        C_Rt = take(kept, A, R);
        B_Rt_leaf = take(kept, PT, R);
        C_Rt_leaf = take(kept, PT, R);
    }

    int64_t counted_bytes() {
        for (int g = 0; g < groups; g++) take_tables(counted);
        return counted.scratch_bytes();
    }

  protected:
    const Problem& problem;
    Memory kept, counted;
    const size_t A = problem.A, PT = problem.PT, R = problem.R, S = A + PT;
    const size_t Ap = step(A), Tp = step(PT), Rp = step(R);
    const int groups = (problem.b + kGroup - 1) / kGroup;
    Tables tables;
    Matrix R_At, B_Rt, C_Rt, B_Rt_leaf, C_Rt_leaf;  // transposed

    Matrix take(Memory& memory, size_t K, size_t N) const {
        return {memory.take(Matrix::size(K, N)), int(K), int(whole_columns(N))};
    }
    Tables take_tables(Memory& memory) const {
        return {take(memory, A, R), take(memory, R, A), take(memory, R, A), take(memory, R, PT), take(memory, R, PT)};
    }
};

class Packing : public Batch {
  public:
    using Batch::Batch;

    int64_t scratch_bytes() const { return kLine * step(std::max(S, R)) * sizeof(Real) + kLineBytes; }

    void pack() {
        pack(problem.logp_R_A, R, tables.R_A, R_At, R);
        pack(problem.logp_B_R, S, tables.B_R, B_Rt, A);
        pack(problem.logp_C_R, S, tables.C_R, C_Rt, A);
        pack(problem.logp_B_R + A, S, tables.B_R_leaf, B_Rt_leaf, PT);
        pack(problem.logp_C_R + A, S, tables.C_R_leaf, C_Rt_leaf, PT);
    }

    // the counts of the part of the rules that is this item
    void unpack() {
        for (int g = 0; g < groups; g++) {
            const Tables d = take_tables(counted);
            unpack(g, tables.R_A, d.R_A, problem.d_logp_R_A, R, R);
            unpack(g, tables.B_R, d.B_R, problem.d_logp_B_R, S, A);
            unpack(g, tables.C_R, d.C_R, problem.d_logp_C_R, S, A);
            unpack(g, tables.B_R_leaf, d.B_R_leaf, problem.d_logp_B_R + A, S, PT);
            unpack(g, tables.C_R_leaf, d.C_R_leaf, problem.d_logp_C_R + A, S, PT);
        }
    }

  private:
    // n columns of a matrix with rows of the given size, as they are and transposed
    void pack(const Real* logp, size_t row, Matrix to, Matrix to_t, int n) {
        Memory scratch(problem.scratch);
        const size_t np = step(n);
        Real* const p = scratch.take(kLine * np);
        for (int k = 0; k < to.K; k += kLine) {
            const int rows = min(kLine, to.K - k);
            for (int r = 0; r < rows; r++) {
                exp_row(p + r * np, logp + (k + r) * row, n, logp + (k + r) * row + n);
                std::memset(p + r * np + whole_lines(n), 0, (to.N - whole_lines(n)) * sizeof(Real));
                for (int c = 0; c < to.N; c += kColumns)
                    std::memcpy(to.at(k + r, c), p + r * np + c, kColumns * sizeof(Real));
            }
            for (int c = 0; c < n; c += kLine) {
                alignas(kLineBytes) Real tile[kLine * kLine];
                transpose(p + c, np, rows, kLine, tile, kLine);
                for (int m = 0; m < min(kLine, n - c); m++)
                    std::memcpy(to_t.at(c + m, k), tile + m * kLine, kLineBytes);
            }
        }
        for (int k = whole_lines(to.K); k < to_t.N; k += kLine)
            for (int c = 0; c < n; c++) std::memset(to_t.at(c, k), 0, kLineBytes);
    }

    void unpack(int group, Matrix p, Matrix d, Real* out, size_t row, int n) {
        for (int k = p.K * problem.item / problem.items; k < p.K * (problem.item + 1) / problem.items; k++)
            for (int c = 0; c < n; c += kColumns) {
                Real* const to = out + k * row + c;
                const Real *const x = p.at(k, c), *const d_x = d.at(k, c);
                alignas(kLineBytes) Real counts[kColumns];
                counts_row(counts, x, d_x, kColumns, counts + kColumns);
                for (int m = 0; m < min(kColumns, n - c); m++) to[m] = group ? to[m] + counts[m] : counts[m];
            }
    }
};

class Group : public Batch {
  public:
    Group(const Problem& p, int group) : Batch(p), group(group), scratch(p.scratch) {
        for (int g = 0; g <= group; g++) {  // the charts of this group are behind those of the others
            sentences = min(kGroup, p.b - g * kGroup);
            for (int m = 0; m < sentences; m++) length[m] = p.lengths[p.order[g * kGroup + m]];
            words = spans(1), rows = first_row(l() + 1);
            leaf = kept.take(words * Tp);
            x = kept.take((rows - words) * Rp) - words * Rp;
            s = kept.take((rows - words) * Ap) - words * Ap;
            left = kept.take(rows * Rp);
            right = kept.take(rows * Rp);
            scale = kept.take<int>(rows);
            x_scale = kept.take<int>(rows);
        }
        const size_t collected = kChunk + words;
        row_of = scratch.take<size_t>((l() + 1) * kGroup);
        terms = scratch.take<Term>(l());
        d_left = scratch.take(collected * Rp);
        d_right = scratch.take(collected * Rp);
        d_total = scratch.take(collected * Ap);
        d_x = scratch.take((rows - words) * Rp) - words * Rp;
        d_leaf = scratch.take(words * Tp);
    }
    int64_t kept_bytes() const { return kept.scratch_bytes(); }
    int64_t scratch_bytes() const { return scratch.scratch_bytes(); }

    void inside() {
        number_rows();
        double offset[kGroup] = {};
        for (int g = 0; g < sentences; g++)
            for (int i = 0; i < length[g]; i++) {
                const size_t n = row(g, i, i + 1);
                const Real* const logp = problem.logp_w_T + (sentence(g) * problem.l + i) * PT;
                offset[g] += leaf_row(leaf + n * Tp, logp, PT, &scale[n]);
            }
        B_Rt_leaf.multiply(false, words, leaf, Tp, left, Rp);
        C_Rt_leaf.multiply(false, words, leaf, Tp, right, Rp);
        for (int width = 2; width <= l(); width++) {
            const size_t low = first_row(width), n = spans(width);
            each_span(width, [&](int g, int i, int j) { split_sum(g, i, j); });
            R_At.multiply(false, n, x + low * Rp, Rp, s + low * Ap, Ap);
            for (size_t r = low; r < low + n; r++) {
                const int exponent = rescale(s + r * Ap, whole_lines(A));
                scale[r] = exponent == kNever ? kNever : x_scale[r] + exponent;
            }
            if (width == l()) break;
            B_Rt.multiply(false, n, s + low * Ap, Ap, left + low * Rp, Rp);
            C_Rt.multiply(false, n, s + low * Ap, Ap, right + low * Rp, Rp);
        }
        for (int g = 0; g < sentences; g++) {
            const size_t n = row(g, 0, length[g]);
            problem.log_Z[sentence(g)] = log_of_goal(root(g), s + n * Ap, A) + scale[n] * M_LN2 + offset[g];
        }
    }

    void outside() {
        number_rows();
        Tables d;
        for (int g = 0; g <= group; g++) d = take_tables(counted);
        if (problem.weight)
            for (const Matrix& it : {d.R_A, d.B_R, d.C_R, d.B_R_leaf, d.C_R_leaf})
                std::memset(it.start, 0, Matrix::size(it.K, it.N) * sizeof(Real));
        size_t high = rows;  // the rows from `low` to it are collected for the gradients of the tables
        for (int width = l(); width >= 2; width--) {
            const size_t low = first_row(width), n = spans(width), place = kChunk + words - (high - low);
            Real *const d_l = d_left + place * Rp, *const d_r = d_right + place * Rp, *const d_t = d_total + place * Ap;
            derive_parts(width, d_l, d_r);
            tables.B_R.multiply(false, n, d_l, Rp, d_t, Ap);
            tables.C_R.multiply(true, n, d_r, Rp, d_t, Ap);
            derive_cells(width, d_t);
            tables.R_A.multiply(false, n, d_t, Ap, d_x + low * Rp, Rp);
            if (high - low < kChunk && width > 2) continue;
            if (problem.weight) {
                d.R_A.add_product(high - low, d_t, Ap, x + low * Rp, Rp);
                d.B_R.add_product(high - low, d_l, Rp, s + low * Ap, Ap);
                d.C_R.add_product(high - low, d_r, Rp, s + low * Ap, Ap);
            }
            high = low;
        }
        if (!problem.weight) return;
        derive_parts(1, d_left, d_right);
        d.B_R_leaf.add_product(words, d_left, Rp, leaf, Tp);
        d.C_R_leaf.add_product(words, d_right, Rp, leaf, Tp);
        tables.B_R_leaf.multiply(false, words, d_left, Rp, d_leaf, Tp);
        tables.C_R_leaf.multiply(true, words, d_right, Rp, d_leaf, Tp);
        each_span(1, [&](int g, int i, int j) {
            const size_t n = row(g, i, j);
            Real* const out = problem.d_logp_w_T + (sentence(g) * problem.l + i) * PT;
            counts_row(out, leaf + n * Tp, d_leaf + n * Tp, PT, out + PT);
        });
    }

  private:
    // A product x y of a sum over splits, and the power of two that brings it to the scale of the sum
    struct Term {
        const Real *x, *y;
        Real f;
    };

    const int group;
    Memory scratch;
    int sentences = 0, length[kGroup] = {};  // of the group, longest first
    size_t words = 0, rows = 0;             // Spans are rows: by width, then by sentence, then by their start.
    // [row] of words, of wider spans, of wider spans, of all, of all
    Real *leaf = nullptr, *x, *s, *left = nullptr, *right;
    int *scale, *x_scale;               // [row]: of s, left and right; of x
    size_t* row_of;                     // [width][sentence]: the first row
    Term* terms;
    Real *d_left, *d_right, *d_total, *d_x, *d_leaf;

    int l() const { return length[0]; }
    int sentence(int g) const { return problem.order[group * kGroup + g]; }
    const Real* root(int g) const { return problem.logp_A_S + (problem.n_roots > 1 ? sentence(g) * A : 0); }

    size_t spans(int width) const {
        size_t n = 0;
        for (int g = 0; g < sentences; g++) n += max(0, length[g] - width + 1);
        return n;
    }
    size_t first_row(int width) const {
        size_t n = 0;
        for (int w = 1; w < width; w++) n += spans(w);
        return n;
    }
    void number_rows() const {
        size_t n = 0;
        for (int width = 1; width <= l(); width++)
            for (int g = 0; g < sentences; n += max(0, length[g] - width + 1), g++) row_of[width * kGroup + g] = n;
    }
    size_t row(int g, int i, int j) const { return row_of[(j - i) * kGroup + g] + i; }

    template <class F> void each_span(int width, F f) const {
        for (int g = 0; g < sentences; g++)
            for (int i = 0; i + width <= length[g]; i++) f(g, i, i + width);
    }

    // sum of the terms, bounded if it is a gradient
    void sum(const Term* end, Real* out) const {
        for (size_t column = 0; column < whole_columns(R); column += kPanel)
            with_lines(min(kPanel, whole_columns(R) - column) / kLine, [&](auto L) {
                Sums<L> sums;
                for (const Term* it = terms; it < end; it++) sums.add(it->f, it->x + column, it->y + column);
                sums.store(out + column);
            });
    }

    void split_sum(int g, int i, int j) const {
        int largest = 2 * kNever;
        for (int k = i + 1; k < j; k++) largest = max(largest, scale[row(g, i, k)] + scale[row(g, k, j)]);
        Term* end = terms;
        for (int k = i + 1; k < j; k++) {
            const size_t m = row(g, i, k), n = row(g, k, j);
            *end++ = {left + m * Rp, right + n * Rp, power_of_two(scale[m] + scale[n] - largest)};
        }
        x_scale[row(g, i, j)] = largest;
        sum(end, x + row(g, i, j) * Rp);
    }

    // d left and d right of a width, from the spans that they are parts of
    void derive_parts(int width, Real* d_l, Real* d_r) const {
        each_span(width, [&](int g, int i, int j) {
            const int own = scale[row(g, i, j)];
            Term* end = terms;
            for (int k = j + 1; k <= length[g]; k++) {  // [i, k) = [i, j) + [j, k)
                const size_t m = row(g, i, k), n = row(g, j, k);
                *end++ = {d_x + m * Rp, right + n * Rp, power_of_two(own + scale[n] - x_scale[m])};
            }
            sum(end, d_l);
            bound(d_l, whole_columns(R));
            end = terms;
            for (int k = 0; k < i; k++) {  // [k, j) = [k, i) + [i, j)
                const size_t m = row(g, k, j), n = row(g, k, i);
                *end++ = {d_x + m * Rp, left + n * Rp, power_of_two(own + scale[n] - x_scale[m])};
            }
            sum(end, d_r);
            bound(d_r, whole_columns(R));
            d_l += Rp, d_r += Rp;
        });
    }

    // from d s of a width to that of its value before it was scaled; s d s is the posterior of the span
    void derive_cells(int width, Real* d) const {
        each_span(width, [&](int g, int i, int j) {
            const size_t n = row(g, i, j);
            const Real* const value = s + n * Ap;
            if (width == length[g])
                derive_goal(root(g), value, A, problem.weight ? problem.weight[sentence(g)] : 1, d,
                            problem.weight ? problem.d_logp_A_S + sentence(g) * A : nullptr);
            bound(d, whole_lines(A));
            if (problem.spans) {
                Real sum = 0;
                for (size_t a = 0; a < A; a++) sum += d[a] * value[a];
                problem.spans[(sentence(g) * (problem.l + 1) + i) * (problem.l + 1) + j] = sum;
            }
            bound(d, whole_lines(A), scale[n] == kNever ? 0 : power_of_two(x_scale[n] - scale[n]));
            d += Ap;
        });
    }
};

}  // namespace

extern "C" {

int64_t sizeof_Problem() { return sizeof(Problem); }

int64_t kept_bytes(const Problem* problem) { return Group(*problem, (problem->b - 1) / kGroup).kept_bytes(); }
int64_t counted_bytes(const Problem* problem) { return Batch(*problem).counted_bytes(); }
int64_t groups(const Problem* problem) { return (problem->b + kGroup - 1) / kGroup; }
// of any item
int64_t scratch_bytes(const Problem* problem) {
    return std::max(Group(*problem, 0).scratch_bytes(), Packing(*problem).scratch_bytes());
}

void pack(const Problem* problem) {
    const FlushDenormals flush;
    Packing(*problem).pack();
}
void inside(const Problem* problem) {
    const FlushDenormals flush;
    Group(*problem, problem->item).inside();
}
void outside(const Problem* problem) {
    const FlushDenormals flush;
    Group(*problem, problem->item).outside();
}
void unpack(const Problem* problem) {
    const FlushDenormals flush;
    Packing(*problem).unpack();
}
}
