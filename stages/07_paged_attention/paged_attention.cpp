// 07.7, for speed: paged attention on a CPU, which reads keys and values where they lie. A reader may skip this file.
//
// In the order of the block table, and scores never leave the core's own cache. attention.py says the same in PyTorch.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t AHEAD = 16;  // tokens: blocks lie anywhere, so memory has to be told in time what comes next
constexpr int64_t WIDEST = 512;  // head

// Some neighboring KV heads of a request: its block table, and where those heads are in the first slot of the cache.
template <typename T>
struct Known {
  const T *keys, *values;
  const int32_t* table;
  int64_t seq_len, kv_heads, block_size, block_stride, slot_stride, head_stride;

  const T* at(const T* first, int64_t position) const {
    return first + table[position / block_size] * block_stride + position % block_size * slot_stride;
  }
  const T* at_and_ahead(const T* first, int64_t position) const {
    if (position + AHEAD < seq_len) {
      const T* next = at(first, position + AHEAD);
      for (int64_t i = 0; i < kv_heads * head_stride; i += 64 / sizeof(T)) __builtin_prefetch(next + i);
    }
    return at(first, position);
  }
};

// One token's query heads, `group` for each KV head and `apart` from each other, over what is known -> output [heads, size].
// A SIZE that the compiler knows lets it keep a head in registers, which makes the loops over it three times as fast.
template <typename T, int64_t SIZE>
void attend(const T* query, int64_t apart, const Known<T> known, T* output, int64_t group, int64_t any_size,
            float scaling, std::vector<float>& scratch) {
  const int64_t size = SIZE ? SIZE : any_size, heads = known.kv_heads * group, seq_len = known.seq_len;
  scratch.assign(heads * (2 * size + seq_len), 0.0f);
  float *scaled = scratch.data(), *found = scaled + heads * size, *scores = found + heads * size;
  float wide[SIZE ? SIZE : WIDEST];  // a key, and then a value
  for (int64_t head = 0; head < heads; head++)
    for (int64_t i = 0; i < size; i++) scaled[head * size + i] = static_cast<float>(query[head * apart + i]) * scaling;

  for (int64_t at = 0; at < seq_len; at++) {
    const T* key = known.at_and_ahead(known.keys, at);
    for (int64_t kv_head = 0; kv_head < known.kv_heads; kv_head++) {
      for (int64_t i = 0; i < size; i++) wide[i] = static_cast<float>(key[kv_head * known.head_stride + i]);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        float score = 0;
        for (int64_t i = 0; i < size; i++) score += scaled[head * size + i] * wide[i];
        scores[head * seq_len + at] = score;
      }
    }
  }
  for (int64_t head = 0; head < heads; head++) {
    float *row = scores + head * seq_len, best = *std::max_element(row, row + seq_len), total = 0;
    for (int64_t at = 0; at < seq_len; at++) row[at] = std::exp(row[at] - best);
    for (int64_t at = 0; at < seq_len; at++) total += row[at];
    for (int64_t at = 0; at < seq_len; at++) row[at] /= total;
  }
  for (int64_t at = 0; at < seq_len; at++) {
    const T* value = known.at_and_ahead(known.values, at);
    for (int64_t kv_head = 0; kv_head < known.kv_heads; kv_head++) {
      for (int64_t i = 0; i < size; i++) wide[i] = static_cast<float>(value[kv_head * known.head_stride + i]);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const float weight = scores[head * seq_len + at];
        for (int64_t i = 0; i < size; i++) found[head * size + i] += weight * wide[i];
      }
    }
  }
  for (int64_t i = 0; i < heads * size; i++) output[i] = static_cast<T>(found[i]);
}

// query [T, heads, size], cache [2, blocks, block_size, KV heads, size], tables [R, widest] int32, query_starts [R + 1]
// and seq_lens [R] int32 -> [T, heads, size]. Tokens, or KV heads where those are few, are shared out among threads.
at::Tensor attention(const at::Tensor& query, const at::Tensor& cache, const at::Tensor& tables,
                     const at::Tensor& query_starts, const at::Tensor& seq_lens, double scaling) {
  const at::Tensor queries = query.stride(2) == 1 ? query : query.contiguous();
  at::Tensor output = at::empty(queries.sizes(), queries.options());
  const int64_t heads = queries.size(1), size = queries.size(2), kv_heads = cache.size(3), group = heads / kv_heads;
  TORCH_CHECK(size <= WIDEST, "heads of ", size, " are wider than ", WIDEST);
  const auto table = tables.const_data_ptr<int32_t>(), starts = query_starts.const_data_ptr<int32_t>();
  const auto lens = seq_lens.const_data_ptr<int32_t>();
  std::vector<std::pair<const int32_t*, int64_t>> tokens;  // of each: its block table, and how many it attends to
  for (int64_t row = 0; row < seq_lens.size(0); row++)
    for (int32_t token = starts[row]; token < starts[row + 1]; token++)
      tokens.emplace_back(table + row * tables.stride(0), lens[row] - starts[row + 1] + token + 1);

  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, queries.scalar_type(), "paged_attention", [&] {
    const auto from = queries.const_data_ptr<scalar_t>(), keys = cache.const_data_ptr<scalar_t>();
    const auto to = output.mutable_data_ptr<scalar_t>();
    const auto one = size == 32    ? attend<scalar_t, 32>
                     : size == 64  ? attend<scalar_t, 64>
                     : size == 128 ? attend<scalar_t, 128>
                                   : attend<scalar_t, 0>;
    const int64_t parts = tokens.size() < 4 ? kv_heads : 1, together = kv_heads / parts;
    std::atomic<int64_t> next{0};  // each thread takes the next when it is done with its last
    at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
      std::vector<float> scratch;
      for (int64_t i; (i = next++) < static_cast<int64_t>(tokens.size()) * parts;) {
        const int64_t token = i / parts, kv_head = i % parts * together, head = kv_head * group;
        const auto [blocks, seq_len] = tokens[token];
        const scalar_t* first = keys + kv_head * cache.stride(3);
        const Known<scalar_t> known{first, first + cache.stride(0), blocks, seq_len, together, cache.size(2),
                                    cache.stride(1), cache.stride(2), cache.stride(3)};
        one(from + token * queries.stride(0) + head * queries.stride(1), queries.stride(1), known,
            to + (token * heads + head) * size, group, size, static_cast<float>(scaling), scratch);
      }
    });
  });
  return output;
}

// key and value [T, KV heads, size] into the cache at slots [T] int64.
void store(const at::Tensor& key, const at::Tensor& value, at::Tensor cache, const at::Tensor& slots) {
  const int64_t total = cache.size(1) * cache.size(2), heads = cache.size(3), bytes = cache.element_size();
  const auto slot = slots.const_data_ptr<int64_t>();
  for (int64_t part = 0; part < 2; part++) {
    const at::Tensor given = part ? value : key, rows = given.stride(2) == 1 ? given : given.contiguous();
    const auto from = static_cast<const char*>(rows.const_data_ptr());
    const auto to = static_cast<char*>(cache.mutable_data_ptr()) + part * cache.stride(0) * bytes;
    for (int64_t token = 0; token < slots.size(0); token++) {
      TORCH_CHECK(0 <= slot[token] && slot[token] < total, "slot ", slot[token], " is not one of ", total);
      for (int64_t head = 0; head < heads; head++)
        std::memcpy(to + (slot[token] * cache.stride(2) + head * cache.stride(3)) * bytes,
                    from + (token * rows.stride(0) + head * rows.stride(1)) * bytes, cache.size(4) * bytes);
    }
  }
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(flo_cpu, library) {
  library.def("attention(Tensor query, Tensor cache, Tensor tables, Tensor query_starts, Tensor seq_lens, float scaling) -> Tensor", &attention);
  library.def("store(Tensor key, Tensor value, Tensor(a!) cache, Tensor slots) -> ()", &store);
}
