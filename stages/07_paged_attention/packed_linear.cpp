// 07.7, for speed: a few rows times a matrix, on a CPU. A reader may skip this file.
//
// A step reads every weight of the model once; nothing is faster than reading them in the order in which they lie. So
// they are laid out anew: in panels of as many outputs as three registers hold, each panel input by input. Threads take one panel after the other, so one that other processes hold up does not hold up the rest.

#include <torch/library.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "lanes.h"

namespace {

constexpr int64_t ROWS = REGISTERS / 4, VECTORS = 3, PANEL = VECTORS * LANES;  // three quarters of the registers hold sums

typedef Words Pairs;  // of bfloat16: two neighboring inputs in each lane

inline Floats add_product(Floats sum, Floats weights, float input) { return sum + weights * input; }

inline Floats add_product(Floats sum, Pairs weights, uint32_t inputs) {
#ifdef __AVX512BF16__
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)(Pairs{} + inputs));
#else
  const Pairs both = Pairs{} + inputs, upper = Pairs{} + 0xffff0000u;  // a bfloat16 is the upper half of a float
  sum += (Floats)(weights << 16) * (Floats)(both << 16);
  return sum + (Floats)(weights & upper) * (Floats)(both & upper);
#endif
}

// What a lane holds: one input, or two of half the size.
template <typename T>
using Word = std::conditional_t<sizeof(T) == 4, float, uint32_t>;

// `width` outputs of a matrix, which has `outputs` of them.
template <typename T>
struct Panel {
  const Word<T>* weights;  // [words, PANEL]
  const char* ahead;  // the next panel, fetched meanwhile: while later rows go over this one, memory has time for it
  const T* bias;  // or null
  int64_t words, width, outputs;
};

// R rows `x` [R, words] times a panel -> y. Of what is ahead they fetch the bytes from `fetched` on, `share` for each word.
template <typename T, int64_t R>
void multiply(const Word<T>* x, const Panel<T>& panel, T* y, int64_t fetched, int64_t share) {
  using Vector = std::conditional_t<sizeof(T) == 4, Floats, Pairs>;
  Floats sums[R][VECTORS] = {};
  const char* ahead = panel.ahead + fetched;
  for (int64_t word = 0; word < panel.words; word++, ahead += share) {
    Vector weights[VECTORS];
    for (int64_t i = 0; i < VECTORS; i++) {
      std::memcpy(&weights[i], panel.weights + word * PANEL + i * LANES, sizeof(Vector));
      __builtin_prefetch(ahead + i * sizeof(Vector), 0, 2);
    }
#pragma GCC unroll 8
    for (int64_t row = 0; row < R; row++)
#pragma GCC unroll 4
      for (int64_t i = 0; i < VECTORS; i++)
        sums[row][i] = add_product(sums[row][i], weights[i], x[row * panel.words + word]);
  }
  float found[R][PANEL];
  std::memcpy(found, sums, sizeof found);
  for (int64_t row = 0; row < R; row++)
    for (int64_t i = 0; i < panel.width; i++)
      y[row * panel.outputs + i] = static_cast<T>(found[row][i] + (panel.bias ? float(panel.bias[i]) : 0.0f));
}

// All rows times a panel, as many at a time as registers have room for. Their shares of what is ahead are rounded down: with
// hundreds of rows a panel is used for so long that fetching it does not matter.
template <typename T>
void multiply_rows(const Word<T>* x, int64_t rows, const Panel<T>& panel, T* y) {
  static constexpr auto multiply_some = []<int64_t... R>(std::integer_sequence<int64_t, R...>) {
    return std::array{&multiply<T, R + 1>...};
  }(std::make_integer_sequence<int64_t, ROWS>());
  constexpr int64_t bytes = PANEL * sizeof(Word<T>);
  for (int64_t done = 0, count, times = (rows + ROWS - 1) / ROWS; times; times--, done += count) {
    count = (rows - done + times - 1) / times;
    const int64_t fetched = panel.words * bytes * done / rows, share = bytes * count / rows;
    multiply_some[count - 1](x + done * panel.words, panel, y + done * panel.outputs, fetched, share);
  }
}

template <typename T>
void multiply_all(const at::Tensor& x, const at::Tensor& weight, const T* bias, at::Tensor& y) {
  const auto from = reinterpret_cast<const Word<T>*>(x.const_data_ptr<T>());
  const auto weights = reinterpret_cast<const Word<T>*>(weight.const_data_ptr<T>());
  const auto to = y.mutable_data_ptr<T>();
  const int64_t panels = weight.size(0), words = weight.size(1), outputs = y.size(-1), rows = y.numel() / outputs;
  share_out(panels, [&](int64_t panel, int64_t next) {
    const int64_t first = panel * PANEL, width = std::min(PANEL, outputs - first);
    const auto ahead = reinterpret_cast<const char*>(weights + std::min(next, panels - 1) * PANEL * words);
    const T* add = bias ? bias + first : nullptr;
    multiply_rows<T>(from, rows, {weights + first * words, ahead, add, words, width, outputs}, to + first);
  });
}

// x [..., inputs], weight as `pack` made it, bias [outputs] -> [..., outputs]
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, int64_t outputs) {
  TORCH_CHECK(x.size(-1) * x.element_size() == weight.size(1) * 4 && 0 < outputs && outputs <= weight.size(0) * PANEL,
              "rows of ", x.size(-1), " do not fit a matrix of ", weight.sizes(), " for ", outputs, " outputs");
  auto shape = x.sizes().vec();
  shape.back() = outputs;
  at::Tensor y = at::empty(shape, x.options());
  const at::Tensor rows = x.contiguous();
  if (x.scalar_type() == at::kFloat)
    multiply_all<float>(rows, weight, bias ? bias->const_data_ptr<float>() : nullptr, y);
  else
    multiply_all<at::BFloat16>(rows, weight, bias ? bias->const_data_ptr<at::BFloat16>() : nullptr, y);
  return y;
}

// The shape alone, for the compiler.
at::Tensor linear_shape(const at::Tensor& x, const at::Tensor&, const std::optional<at::Tensor>&, int64_t outputs) {
  auto shape = x.sym_sizes().vec();
  shape.back() = outputs;
  return x.new_empty_symint(shape);
}

// weight [outputs, inputs], float32 or bfloat16 -> [panels, words, PANEL * inputs in a word]
at::Tensor pack(const at::Tensor& weight) {
  const int64_t together = 4 / weight.element_size(), outputs = weight.size(0), inputs = weight.size(1);
  TORCH_CHECK(inputs % together == 0, inputs, " inputs cannot be taken two at a time");
  const int64_t panels = (outputs + PANEL - 1) / PANEL;
  at::Tensor whole = at::zeros({panels * PANEL, inputs}, weight.options());
  whole.narrow(0, 0, outputs).copy_(weight);
  const at::Tensor apart = whole.view({panels, PANEL, inputs / together, together}).transpose(1, 2).contiguous();
  return apart.view({panels, inputs / together, PANEL * together});
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(flo_cpu, library) {
  library.def("pack(Tensor weight) -> Tensor", &pack);
  library.def("linear(Tensor x, Tensor weight, Tensor? bias, int outputs) -> Tensor");
}
TORCH_LIBRARY_IMPL(flo_cpu, CPU, library) { library.impl("linear", &linear); }
TORCH_LIBRARY_IMPL(flo_cpu, Meta, library) { library.impl("linear", &linear_shape); }
