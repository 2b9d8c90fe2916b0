// 07.7 for speed: paged attention on a CPU. Keys and values are read where they lie, in the order of the block table, and
// scores never leave the core's own cache. attention.py says the same in PyTorch; read that one first.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

// One token's `group` query heads over the first `seq_len` tokens of its request, for the KV head that they share.
// query and output are [group, size]; keys and values point at this head in the first slot of the cache.
template <typename T>
void attend(const T* query, const T* keys, const T* values, T* output, const int32_t* table, int64_t seq_len,
            int64_t group, int64_t size, const at::Tensor& cache, float scaling, std::vector<float>& scratch) {
  const int64_t block_size = cache.size(2), block_stride = cache.stride(1), slot_stride = cache.stride(2);
  scratch.assign(group * (2 * size + seq_len), 0.0f);
  float *scaled = scratch.data(), *found = scaled + group * size, *scores = found + group * size;
  for (int64_t i = 0; i < group * size; i++) scaled[i] = static_cast<float>(query[i]) * scaling;

  for (int64_t at = 0; at < seq_len; at++) {
    const T* key = keys + table[at / block_size] * block_stride + at % block_size * slot_stride;
    for (int64_t head = 0; head < group; head++) {
      float score = 0;
#pragma omp simd reduction(+ : score)
      for (int64_t i = 0; i < size; i++) score += scaled[head * size + i] * static_cast<float>(key[i]);
      scores[head * seq_len + at] = score;
    }
  }
  for (int64_t head = 0; head < group; head++) {
    float *row = scores + head * seq_len, best = *std::max_element(row, row + seq_len), total = 0;
    for (int64_t at = 0; at < seq_len; at++) total += row[at] = std::exp(row[at] - best);
    for (int64_t at = 0; at < seq_len; at++) row[at] /= total;
  }
  for (int64_t at = 0; at < seq_len; at++) {
    const T* value = values + table[at / block_size] * block_stride + at % block_size * slot_stride;
    for (int64_t head = 0; head < group; head++) {
      const float weight = scores[head * seq_len + at];
#pragma omp simd
      for (int64_t i = 0; i < size; i++) found[head * size + i] += weight * static_cast<float>(value[i]);
    }
  }
  for (int64_t i = 0; i < group * size; i++) output[i] = static_cast<T>(found[i]);
}

// query [T, heads, size], cache [2, blocks, block_size, KV heads, size], tables [R, widest] int32, query_starts [R + 1]
// and seq_lens [R] int32 -> [T, heads, size]. Tokens and KV heads are shared out among torch's threads.
at::Tensor paged_attention(const at::Tensor& query, const at::Tensor& cache, const at::Tensor& tables,
                           const at::Tensor& query_starts, const at::Tensor& seq_lens, double scaling) {
  const at::Tensor queries = query.contiguous();
  at::Tensor output = at::empty_like(queries);
  const int64_t heads = queries.size(1), size = queries.size(2), kv_heads = cache.size(3), group = heads / kv_heads;
  const auto starts = query_starts.const_data_ptr<int32_t>(), lens = seq_lens.const_data_ptr<int32_t>();
  std::vector<std::pair<const int32_t*, int64_t>> tokens;  // of each: its block table, and how many it attends to
  for (int64_t row = 0; row < seq_lens.size(0); row++)
    for (int64_t token = starts[row]; token < starts[row + 1]; token++)
      tokens.emplace_back(tables.const_data_ptr<int32_t>() + row * tables.stride(0), lens[row] - starts[row + 1] + token + 1);

  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, queries.scalar_type(), "paged_attention", [&] {
    const auto from = queries.const_data_ptr<scalar_t>(), keys = cache.const_data_ptr<scalar_t>();
    const auto to = output.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, tokens.size() * kv_heads, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> scratch;
      for (int64_t i = begin; i < end; i++) {
        const auto [table, seq_len] = tokens[i / kv_heads];
        const int64_t kv_head = i % kv_heads, place = (i / kv_heads * heads + kv_head * group) * size;
        const scalar_t* first = keys + kv_head * cache.stride(3);
        attend(from + place, first, first + cache.stride(0), to + place, table, seq_len, group, size, cache,
               static_cast<float>(scaling), scratch);
      }
    });
  });
  return output;
}

}  // namespace

TORCH_LIBRARY(flo_paged, library) {
  library.def("attention(Tensor query, Tensor cache, Tensor tables, Tensor query_starts, Tensor seq_lens, float scaling) -> Tensor",
              &paged_attention);
}
