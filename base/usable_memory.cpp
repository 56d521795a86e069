#include "base/usable_memory.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/control_group.hpp"

namespace mayfly {
namespace {

/// The number after `name` in a file of lines.
std::optional<std::uint64_t> field(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  return at == std::string_view::npos ? std::nullopt
                                      : leading_number(text.substr(at + name.size()));
}

/// The memory that a control group's limit leaves. The page cache is released before the limit is
/// reached, but the shared memory that is counted with it is not.
std::optional<std::uint64_t> remaining_in(const std::string& limit, const std::string& used,
                                          const std::string& facts, const char* file_pages,
                                          const char* shared_pages) {
  const std::optional<std::uint64_t> most = leading_number(content_of_kernel_file(limit));
  const std::optional<std::uint64_t> taken = leading_number(content_of_kernel_file(used));
  if (!most || !taken) {
    return std::nullopt;
  }
  const std::string text = content_of_kernel_file(facts);
  const std::uint64_t files = field(text, file_pages).value_or(0);
  const std::uint64_t cache = files - std::min(files, field(text, shared_pages).value_or(0));
  const std::uint64_t kept = *taken - std::min(*taken, cache);
  return *most - std::min(*most, kept);
}

std::uint64_t remaining_in_groups() {
  std::uint64_t least = UINT64_MAX;
  for (const std::string& group : control_groups()) {
    const auto left = remaining_in(group + "/memory.max", group + "/memory.current",
                                   group + "/memory.stat", "\nfile ", "\nshmem ");
    least = std::min(least, left.value_or(UINT64_MAX));
  }
  for (const std::string& group : control_groups("memory")) {
    const auto left =
        remaining_in(group + "/memory.limit_in_bytes", group + "/memory.usage_in_bytes",
                     group + "/memory.stat", "total_cache ", "total_shmem ");
    least = std::min(least, left.value_or(UINT64_MAX));
  }
  return least;
}

/// Overlapping claims of this process.
struct Claims {
  std::mutex mutex;
  std::uint64_t present = 0;
  std::uint64_t usable = 0;  // usable memory when the first of them was made
  std::uint64_t bytes = 0;   // bytes of all claims since then
};

Claims& claims() {
  static Claims all;
  return all;
}

}  // namespace

std::uint64_t usable_memory_of_machine() {
  const std::optional<std::uint64_t> kib =
      field(content_of_kernel_file("/proc/meminfo"), "MemAvailable:");
  return kib ? *kib * 1024 : UINT64_MAX;
}

std::uint64_t usable_memory() {
  return std::min(usable_memory_of_machine(), remaining_in_groups());
}

MemoryClaim::MemoryClaim(std::uint64_t bytes, std::uint64_t (*measure)()) {
  Claims& all = claims();
  const std::lock_guard lock(all.mutex);
  if (all.present == 0) {
    all.usable = measure();
    all.bytes = 0;
  }
  ++all.present;
  usable_ = all.usable;
  fits_ = bytes <= all.usable - all.bytes;
  all.bytes += fits_ ? bytes : 0;
}

MemoryClaim::~MemoryClaim() {
  Claims& all = claims();
  const std::lock_guard lock(all.mutex);
  --all.present;
}

}  // namespace mayfly
