// What the networks spend their time in: products of large matrices, and the softmax over the vocabulary.
//
// The softmax takes the words in blocks that stay in the cache. P[v][n] is exp(logit of word v for row n - peak), where
// `peak` is the largest logit of the row so far; the peaks of each block are kept, so that P can be brought to one scale
// afterwards: the probability is P exp(peak - log_sum).

#include "exponential.h"
#include "matrix.h"

#include <cmath>

namespace {

// What Python passes (native/networks.py)
struct Product {
    int64_t M, N, K;  // C [M][N] = A [M][K] B [K][N]
    int64_t A_row, A_column, B_row, B_column, C_row;  // from one to the next in memory
    const Real *A, *B;
    Real *C, *scratch;
};

struct Softmax {
    int64_t rows, dim, words, block;  // of this part; words of a block
    int64_t P_row;                    // from one word to the next in P, from one block to the next in peaks
    const Real *x, *weight, *bias;    // [row][dim], [word][dim], [word]
    Real *P, *peaks, *log_sum, *mean;  // [word][row], [block][row], [row], [row][dim]; P and mean null if not wanted
    const Real* scale;                // [row], of the gradient of the logits: scale * probability
    Real *d_weight, *d_bias;          // [word][dim], [word]
    Real* scratch;
};

constexpr int round_up(int n, int step) { return (n + step - 1) / step * step; }

Real* aligned(Real* memory) { return (Real*)((uintptr_t(memory) + kLineBytes - 1) / kLineBytes * kLineBytes); }

class Forward {
  public:
    explicit Forward(const Softmax& s) : s(s) {}

    static int64_t scratch_size(const Softmax& s) {
        const int N = round_up(s.rows, kTileColumns);
        return kPanelsSize + N * round_up(s.dim, kLine) + (s.block + 3) * N + kLine;
    }

    void run() {
        for (int k = 0; k < dim; k += kDepth)
            pack_panels(rows, depth(k), {s.x + k, 1, dim}, x_panels + size_t(k) * N);
        for (int n = 0; n < columns; n++) peak[n] = -INFINITY, sum[n] = 0;
        for (int v = 0, block = 0; v < s.words; v += s.block, block++) {
            const int words = s.words - v < s.block ? s.words - v : s.block;
            Real* const P = s.P ? s.P + v * s.P_row : logits;
            const ptrdiff_t P_row = s.P ? s.P_row : N;
            for (int k = 0; k < dim; k += kDepth)
                times_panels(k > 0, words, columns, depth(k), {s.weight + v * dim + k, dim, 1},
                             x_panels + size_t(k) * N, P, P_row);
            add_bias(words, s.bias + v, P, P_row);
            if (block > 0) rescale();
            for (int n = 0; n < columns; n++) peak[n] = new_peak[n];
            exponentials(words, P, P_row);
            if (!s.mean) continue;
            for (int n = 0; n < rows; n++) s.peaks[block * s.P_row + n] = peak[n];
            product(block > 0, rows, dim, words, {P, 1, P_row}, {s.weight + v * dim, dim, 1}, s.mean, dim, panels);
        }
        for (int n = 0; n < rows; n++) s.log_sum[n] = peak[n] + std::log(sum[n]);
        if (s.mean)
            for (int n = 0; n < rows; n++) scale_mean(n, 1 / sum[n]);
    }

  private:
    const Softmax& s;
    const int rows = s.rows, dim = s.dim, columns = round_up(rows, kVector), N = round_up(rows, kTileColumns);
    Real* const panels = aligned(s.scratch);
    Real* const x_panels = panels + kPanelsSize;
    Real* const peak = x_panels + N * round_up(dim, kLine);
    Real* const new_peak = peak + N;
    Real* const sum = new_peak + N;
    Real* const logits = sum + N;

    int depth(int k) const { return dim - k < kDepth ? dim - k : kDepth; }

    void add_bias(int words, const Real* bias, Real* P, ptrdiff_t P_row) const {
        std::memcpy(new_peak, peak, columns * sizeof(Real));
        for (int v = 0; v < words; v++)
            for (int n = 0; n < columns; n += kVector) {
                Vector &logit = *(Vector*)(P + v * P_row + n), &most = *(Vector*)(new_peak + n);
                logit += bias[v];
                most = most > logit ? most : logit;
            }
    }

    // sum and mean to the scale of the new peak
    void rescale() const {
        for (int n = 0; n < rows; n++) {
            if (new_peak[n] == peak[n]) continue;
            const Real factor = std::exp(peak[n] - new_peak[n]);
            sum[n] *= factor;
            if (s.mean) scale_mean(n, factor);
        }
    }

    // Each block has a sum of its own: a long sum would lose what is small beside it.
    void exponentials(int words, Real* P, ptrdiff_t P_row) const {
        for (int n = 0; n < columns; n += kVector) {
            Vector of_block = {};
            for (int v = 0; v < words; v++) {
                Vector& p = *(Vector*)(P + v * P_row + n);
                p = exp_of(p - *(const Vector*)(peak + n));
                of_block += p;
            }
            *(Vector*)(sum + n) += of_block;
        }
    }

    void scale_mean(int n, Real factor) const {
        for (int k = 0; k < dim; k++) s.mean[n * dim + k] *= factor;
    }
};

// d_weight[v] = sum_n probability[v, n] scale[n] x[n], and the same for the bias
void derive(const Softmax& s) {
    const int columns = round_up(s.rows, kVector);
    Real *const panels = aligned(s.scratch), *const weight = panels + kPanelsSize;
    for (int v = 0, block = 0; v < s.words; v += s.block, block++) {
        const int words = s.words - v < s.block ? s.words - v : s.block;
        const Real* const P = s.P + v * s.P_row;
        for (int n = 0; n < columns; n++)
            weight[n] = n < s.rows ? s.scale[n] * std::exp(s.peaks[block * s.P_row + n] - s.log_sum[n]) : Real(0);
        product(false, words, s.dim, s.rows, {P, s.P_row, 1}, {s.x, s.dim, 1}, s.d_weight + v * s.dim, s.dim, panels,
                weight);
        for (int m = 0; m < words; m++) {
            Vector totals = {};
            for (int n = 0; n < columns; n += kVector)
                totals += *(const Vector*)(P + m * s.P_row + n) * *(const Vector*)(weight + n);
            Real total = 0;
            for (int n = 0; n < kVector; n++) total += totals[n];
            s.d_bias[v + m] = total;
        }
    }
}

}  // namespace

extern "C" {

int64_t sizeof_Product() { return sizeof(Product); }
int64_t sizeof_Softmax() { return sizeof(Softmax); }

int vector_bytes() { return kVectorBytes; }

int64_t product_scratch_bytes(const Product*) { return kPanelsSize * sizeof(Real) + kLineBytes; }
int64_t softmax_scratch_bytes(const Softmax* s) { return Forward::scratch_size(*s) * sizeof(Real) + kLineBytes; }

void multiply(const Product* p) {
    const Matrix A{p->A, p->A_row, p->A_column}, B{p->B, p->B_row, p->B_column};
    product(false, p->M, p->N, p->K, A, B, p->C, p->C_row, aligned(p->scratch));
}
void softmax(const Softmax* s) { Forward(*s).run(); }
void derive_softmax(const Softmax* s) { derive(*s); }
}
