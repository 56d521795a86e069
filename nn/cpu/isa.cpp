#include "nn/cpu/isa.hpp"

#include <fmt/format.h>

#include <hwy/targets.h>
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/check.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::nn::cpu {
namespace {

struct IsaEntry {
  Isa isa;
  const char* name;
  dnnl::cpu_isa limit;
};

// Best first. "auto" selects nothing below AVX2, because there oneDNN has only reference code for
// backward passes, a hundred times slower. The limits exclude bf16 and AMX variants on purpose:
// fp32 does not use them, and the same limit everywhere means the same code on every machine with
// the basic set.
constexpr IsaEntry kEntries[] = {{Isa::kAvx512, "avx512", dnnl::cpu_isa::avx512_core},
                                 {Isa::kAvx2, "avx2", dnnl::cpu_isa::avx2},
                                 {Isa::kPortable, "portable", dnnl::cpu_isa::sse41}};

/// The instruction sets that a machine may have, in the order in which processors got them.
enum class CpuLevel { kNone, kPortable, kAvx2, kAvx512, kAvx512Bf16 };

CpuLevel level_of_this_cpu() {
  if (!__builtin_cpu_supports("sse4.1")) {
    return CpuLevel::kNone;
  }
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return CpuLevel::kPortable;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512cd")) {
    return CpuLevel::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") ? CpuLevel::kAvx512Bf16 : CpuLevel::kAvx512;
}

/// The limit that kMaxIsaVariable sets. Throws std::invalid_argument for an unknown name: a test
/// run that should have been limited and was not would pass for the wrong reason.
CpuLevel level_limit() {
  const char* const text = std::getenv(kMaxIsaVariable);
  const std::string_view limit = text != nullptr ? text : "";
  if (limit.empty() || limit == "avx512_bf16") {
    return CpuLevel::kAvx512Bf16;
  }
  if (limit == "avx512") {
    return CpuLevel::kAvx512;
  }
  if (limit == "avx2") {
    hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
    return CpuLevel::kAvx2;
  }
  throw std::invalid_argument(
      fmt::format("{}={}: not known (avx512_bf16, avx512 or avx2)", kMaxIsaVariable, limit));
}

CpuLevel detected_level() {
  static const CpuLevel level = std::min(level_of_this_cpu(), level_limit());
  return level;
}

struct Selection {
  std::mutex mutex;
  std::optional<Isa> chosen;
  dnnl::cpu_isa limit = dnnl::cpu_isa::all;
};

Selection& selection() {
  static Selection instance;
  return instance;
}

/// Must be called with the lock. The limit works only before oneDNN's first primitive.
Result<std::string> choose(Selection& state, const IsaEntry& entry, Dtype dtype) {
  if (dtype == Dtype::kFp16) {
    return Error{Errc::kInvalidInput,
                 "dtype fp16 is for GPUs (device cuda); on a CPU use fp32 or bf16"};
  }
  if (dtype == Dtype::kBf16 &&
      (entry.isa != Isa::kAvx512 || detected_level() < CpuLevel::kAvx512Bf16)) {
    return Error{Errc::kUnsupported,
                 fmt::format("bf16 needs a CPU with AVX512-BF16 and that instruction set; {} has "
                             "fp32 only",
                             entry.isa == Isa::kAvx512 ? "this CPU" : entry.name)};
  }
  const dnnl::cpu_isa limit = dtype == Dtype::kBf16 ? dnnl::cpu_isa::avx512_core_bf16 : entry.limit;
  if (state.chosen == entry.isa && state.limit == limit) {
    return std::string(entry.name);
  }
  if (state.chosen.has_value()) {
    return Error{Errc::kInvalidInput,
                 fmt::format("cannot change to {}: the process already computes with another "
                             "instruction set or dtype",
                             entry.name)};
  }
  if (dnnl::set_max_cpu_isa(limit) != dnnl::status::success) {
    return Error{Errc::kUnsupported,
                 fmt::format("oneDNN refuses to be limited to {} (it was used before, or was built "
                             "without that control)",
                             entry.name)};
  }
  state.chosen = entry.isa;
  state.limit = limit;
  return std::string(entry.name);
}

}  // namespace

bool machine_has(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return detected_level() >= CpuLevel::kAvx512;
    case Isa::kAvx2: return detected_level() >= CpuLevel::kAvx2;
    case Isa::kPortable: return detected_level() >= CpuLevel::kPortable;
  }
  UNREACHABLE("every instruction set is listed");
}

Result<std::string> select_isa(const std::string& isa, Dtype dtype) {
  Selection& state = selection();
  const std::lock_guard lock(state.mutex);
  for (const IsaEntry& entry : kEntries) {
    const bool taken =
        isa == "auto" ? entry.isa != Isa::kPortable && machine_has(entry.isa) : isa == entry.name;
    if (!taken) {
      continue;
    }
    if (!machine_has(entry.isa)) {
      return Error{Errc::kUnsupported, fmt::format("this CPU has no {}", entry.name)};
    }
    return choose(state, entry, dtype);
  }
  if (isa == "auto") {
    return Error{Errc::kUnsupported,
                 "training on a CPU needs AVX2 and FMA, which this one lacks (--isa portable "
                 "works, a hundred times slower)"};
  }
  return Error{Errc::kInvalidInput,
               fmt::format("unknown instruction set \"{}\" (auto, avx512, avx2 or portable)", isa)};
}

Isa selected_isa() {
  {
    const std::lock_guard lock(selection().mutex);
    if (selection().chosen.has_value()) {
      return *selection().chosen;
    }
  }
  const Result<std::string> automatic = select_isa("auto");
  ENSURE(automatic.ok(), "the CPU runs none of the supported instruction sets");
  const std::lock_guard lock(selection().mutex);
  return *selection().chosen;
}

}  // namespace mayfly::nn::cpu
