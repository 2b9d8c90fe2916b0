// 07.7, for speed: paged attention on a CPU, which reads keys and values where they lie. A reader may skip this file.
//
// It goes through the blocks of a request in the order of its table. attention.py says the same in PyTorch.

#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lanes.h"

namespace {

constexpr int64_t WIDEST = 512;  // head

// Some neighboring KV heads of a request: its block table, and where those heads are in the first slot of the cache.
template <typename T>
struct Known {
  const T *keys, *values;
  const int32_t* table;
  int64_t seq_len, kv_heads, block_size, block_stride, slot_stride, head_stride;

  // Call `one(slot, ahead, at, count)` for each block: `count` slots from `slot` on hold positions from `at` on, and
  // `ahead` is where the next block begins, or null: blocks lie anywhere, so memory has to be told what comes next.
  template <typename F>
  void for_each_block(const T* first, F one) const {
    const T* slot = first + table[0] * block_stride;
    for (int64_t at = 0; at < seq_len; at += block_size) {
      const T* ahead = at + block_size < seq_len ? first + table[at / block_size + 1] * block_stride : nullptr;
      one(slot, ahead, at, std::min(block_size, seq_len - at));
      slot = ahead;
    }
  }
};

template <typename T>
void fetch(const T* from, int64_t size) {
  for (int64_t i = 0; i < size; i += 64 / sizeof(T)) __builtin_prefetch(from + i, 0, 2);
}

// One token's query heads, `group` for each KV head and `apart` from each other, over what is known -> output [heads, size].
// A SIZE that the compiler knows lets it keep a head in registers.
template <typename T, int64_t SIZE>
void attend(const T* query, int64_t apart, const Known<T> known, T* output, int64_t group, int64_t any_size,
            float scaling) {
  const int64_t size = SIZE ? SIZE : any_size, vectors = (size + LANES - 1) / LANES, padded = vectors * LANES;
  const int64_t heads = known.kv_heads * group, seq_len = known.seq_len;
  constexpr int64_t MOST = (SIZE ? SIZE : WIDEST) / LANES;
  const auto part = [&](const T* head, int64_t i) { return widen(head + i * LANES, SIZE ? LANES : size - i * LANES); };
  std::vector<float> scratch(heads * (seq_len + padded));
  float *scores = scratch.data(), *found = scores + heads * seq_len;

  known.for_each_block(known.keys, [&](const T* slot, const T* ahead, int64_t at, int64_t count) {
    for (int64_t head = 0, kv_head = 0; kv_head < known.kv_heads; kv_head++) {
      const T* first = slot + kv_head * known.head_stride;
      if (ahead)
        for (int64_t place = 0; place < count; place++) fetch(ahead + (first - slot) + place * known.slot_stride, size);
      for (int64_t last = head + group; head < last; head++) {
        Floats wanted[MOST];
#pragma GCC unroll 8
        for (int64_t i = 0; i < vectors; i++) wanted[i] = part(query + head * apart, i) * scaling;
        for (int64_t place = 0; place < count; place++) {
          Floats products = {};
#pragma GCC unroll 8
          for (int64_t i = 0; i < vectors; i++) products += wanted[i] * part(first + place * known.slot_stride, i);
          float score = 0;
          for (int64_t lane = 0; lane < LANES; lane++) score += products[lane];
          scores[head * seq_len + at + place] = score;
        }
      }
    }
  });
  for (int64_t head = 0; head < heads; head++) {
    float *row = scores + head * seq_len, best = *std::max_element(row, row + seq_len), total = 0;
    for (int64_t at = 0; at < seq_len; at++) row[at] = std::exp(row[at] - best);
    for (int64_t at = 0; at < seq_len; at++) total += row[at];
    for (int64_t at = 0; at < seq_len; at++) row[at] /= total;
  }
  known.for_each_block(known.values, [&](const T* slot, const T* ahead, int64_t at, int64_t count) {
    for (int64_t head = 0, kv_head = 0; kv_head < known.kv_heads; kv_head++) {
      const T* first = slot + kv_head * known.head_stride;
      if (ahead)
        for (int64_t place = 0; place < count; place++) fetch(ahead + (first - slot) + place * known.slot_stride, size);
      for (int64_t last = head + group; head < last; head++) {
        Floats sums[MOST];
#pragma GCC unroll 8
        for (int64_t i = 0; i < vectors; i++) sums[i] = widen(found + head * padded + i * LANES);
        for (int64_t place = 0; place < count; place++) {
          const float weight = scores[head * seq_len + at + place];
#pragma GCC unroll 8
          for (int64_t i = 0; i < vectors; i++) sums[i] += weight * part(first + place * known.slot_stride, i);
        }
#pragma GCC unroll 8
        for (int64_t i = 0; i < vectors; i++) std::memcpy(found + head * padded + i * LANES, &sums[i], sizeof(Floats));
      }
    }
  });
  for (int64_t head = 0; head < heads; head++)
    for (int64_t i = 0; i < size; i++) output[head * size + i] = static_cast<T>(found[head * padded + i]);
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
    share_out(tokens.size() * parts, [&](int64_t i, int64_t) {
      const int64_t token = i / parts, kv_head = i % parts * together, head = kv_head * group;
      const auto [blocks, seq_len] = tokens[token];
      const scalar_t* first = keys + kv_head * cache.stride(3);
      const Known<scalar_t> known{first, first + cache.stride(0), blocks, seq_len, together, cache.size(2),
                                  cache.stride(1), cache.stride(2), cache.stride(3)};
      one(from + token * queries.stride(0) + head * queries.stride(1), queries.stride(1), known,
          to + (token * heads + head) * size, group, size, static_cast<float>(scaling));
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
