// The recurrence of an LSTM over a batch, forwards and backwards; all else is large products (matrix.h).
//
// i, f and o are sigmoids, g is a tanh: c_t = f c_(t-1) + i g and h_t = o tanh(c_t), as in torch.

#include "exponential.h"
#include "matrix.h"

namespace {

// What Python passes (native/networks.py)
struct Recurrence {
    int64_t b, l, h;            // sentences, words, size of the state
    const Real* weight;         // [4h][h], the recurrent one
    Real *gates, *c, *state;    // [b][l][4h], [b][l][h], [b][l][h]; gates: the inputs' share at first, then i f g o
    const Real* d_state;        // [b][l][h]
    Real* d_gates;              // [b][l][4h], before the sigmoids and the tanh
    Real* scratch;
};

Vector load(const Real* x, int n) {
    Vector v = {};
    std::memcpy(&v, x, n * sizeof(Real));
    return v;
}
void store(Real* x, Vector v, int n) { std::memcpy(x, &v, n * sizeof(Real)); }

// f(n, size) for pieces of a vector's size and the rest of the state
template <class F> void each_piece(int h, F f) {
    int n = 0;
    for (; n + kVector <= h; n += kVector) f(n, kVector);
    if (n < h) f(n, h - n);
}

Vector sigmoid(Vector x) {
    const Vector least = Vector{} - Real(80), bounded = x < least ? least : x;  // exp(80) is still a float
    return 1 / (1 + exp_of(-bounded));
}
// near 0, where the difference would cancel, by its series
Vector tanh(Vector x) {
    constexpr Real near = kIsFloat ? 0.25 : 0.02;
    const Vector z = x * x;
    const Vector series = x - x * z * (Real(1. / 3) - z * (Real(2. / 15) - z * (Real(17. / 315) - z * Real(62. / 2835))));
    return z < near * near ? series : 2 * sigmoid(2 * x) - 1;
}

class LSTM {
  public:
    explicit LSTM(const Recurrence& p) : p(p) {}

    static int64_t scratch_size(const Recurrence& p) { return 4 * p.h * columns(p.h) + 2 * p.b * p.h + 2 * kLine; }

    void forward() const {
        // panels of weight^T: h rows, 4h columns
        for (int k = 0; k < h; k += kDepth)
            pack_panels(4 * h, depth(k, h), {p.weight + k, 1, h}, panels + size_t(k) * columns(4 * h));
        for (int t = 0; t < l; t++) {
            for (int k = 0; t > 0 && k < h; k += kDepth)
                times_panels(true, b, 4 * h, depth(k, h), {p.state + (t - 1) * h + k, l * h, 1},
                             panels + size_t(k) * columns(4 * h), p.gates + t * 4 * h, l * 4 * h);
            for (int n = 0; n < b; n++) advance(n * l + t, t == 0);
        }
    }

    void backward() const {
        // panels of weight: 4h rows, h columns
        for (int k = 0; k < 4 * h; k += kDepth)
            pack_panels(h, depth(k, 4 * h), {p.weight + size_t(k) * h, h, 1}, panels + size_t(k) * columns(h));
        std::memset(d_c, 0, 2 * size_t(b) * h * sizeof(Real));
        for (int t = l - 1; t >= 0; t--) {
            for (int n = 0; n < b; n++) derive(n * l + t, t == 0, d_c + n * h, d_h + n * h);
            for (int k = 0; t > 0 && k < 4 * h; k += kDepth)
                times_panels(k > 0, b, h, depth(k, 4 * h), {p.d_gates + t * 4 * h + k, l * 4 * h, 1},
                             panels + size_t(k) * columns(h), d_h, h);
        }
    }

  private:
    const Recurrence& p;
    const int b = p.b, l = p.l, h = p.h;
    Real* const panels = (Real*)((uintptr_t(p.scratch) + kLineBytes - 1) / kLineBytes * kLineBytes);
    Real* const d_c = panels + size_t(4) * h * columns(h);  // of the step after the one at hand; d_h likewise
    Real* const d_h = d_c + b * h;

    static int columns(int n) { return (n + kTileColumns - 1) / kTileColumns * kTileColumns; }
    static int depth(int k, int K) { return K - k < kDepth ? K - k : kDepth; }

    // the state of word `at` from the sums in its gates
    void advance(size_t at, bool first) const {
        Real *const gates = p.gates + at * 4 * h, *const c = p.c + at * h, *const state = p.state + at * h;
        each_piece(h, [&](int n, int size) {
            const Vector i = sigmoid(load(gates + n, size)), f = sigmoid(load(gates + h + n, size));
            const Vector g = tanh(load(gates + 2 * h + n, size)), o = sigmoid(load(gates + 3 * h + n, size));
            const Vector next = first ? i * g : f * load(c - h + n, size) + i * g;
            store(gates + n, i, size), store(gates + h + n, f, size);
            store(gates + 2 * h + n, g, size), store(gates + 3 * h + n, o, size);
            store(c + n, next, size);
            store(state + n, o * tanh(next), size);
        });
    }

    void derive(size_t at, bool first, Real* d_c, const Real* d_h) const {
        const Real *const gates = p.gates + at * 4 * h, *const c = p.c + at * h;
        Real* const d_gates = p.d_gates + at * 4 * h;
        each_piece(h, [&](int n, int size) {
            const Vector i = load(gates + n, size), f = load(gates + h + n, size);
            const Vector g = load(gates + 2 * h + n, size), o = load(gates + 3 * h + n, size);
            const Vector before = first ? Vector{} : load(c - h + n, size), bounded = tanh(load(c + n, size));
            const Vector d = load(p.d_state + at * h + n, size) + load(d_h + n, size);
            const Vector d_now = load(d_c + n, size) + d * o * (1 - bounded * bounded);
            store(d_gates + n, d_now * g * i * (1 - i), size);
            store(d_gates + h + n, d_now * before * f * (1 - f), size);
            store(d_gates + 2 * h + n, d_now * i * (1 - g * g), size);
            store(d_gates + 3 * h + n, d * bounded * o * (1 - o), size);
            store(d_c + n, d_now * f, size);
        });
    }
};

}  // namespace

extern "C" {

int64_t sizeof_Recurrence() { return sizeof(Recurrence); }

int64_t scratch_bytes(const Recurrence* p) { return LSTM::scratch_size(*p) * sizeof(Real) + kLineBytes; }
void forward(const Recurrence* p) { LSTM(*p).forward(); }
void backward(const Recurrence* p) { LSTM(*p).backward(); }
}
