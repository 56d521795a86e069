#include "base/usable_memory.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace mayfly {
namespace {

constexpr const char* kGroups = "/sys/fs/cgroup";

/// The kernel's files have no size before they are read.
std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The number at the beginning of the text; nothing if there is none, as for "max".
std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

/// The number behind `name` in a file of lines.
std::optional<std::uint64_t> field(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  return at == std::string_view::npos ? std::nullopt
                                      : leading_number(text.substr(at + name.size()));
}

/// What a control group's limit leaves. Its page cache is given back before the limit is reached,
/// but not the shared memory that is counted with it.
std::optional<std::uint64_t> left_in(const std::string& limit, const std::string& used,
                                     const std::string& facts, const char* file_pages,
                                     const char* shared_pages) {
  const std::optional<std::uint64_t> most = leading_number(content_of(limit));
  const std::optional<std::uint64_t> taken = leading_number(content_of(used));
  if (!most || !taken) {
    return std::nullopt;
  }
  const std::string text = content_of(facts);
  const std::uint64_t files = field(text, file_pages).value_or(0);
  const std::uint64_t cache = files - std::min(files, field(text, shared_pages).value_or(0));
  const std::uint64_t kept = *taken - std::min(*taken, cache);
  return *most - std::min(*most, kept);
}

/// The folder of a line "N:CONTROLLERS:PATH" of /proc/self/cgroup, without its first slash.
std::optional<std::string> group_of(std::string_view groups, std::string_view before_path) {
  const std::size_t at = groups.find(before_path);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view rest = groups.substr(at + before_path.size());
  return std::string(rest.substr(0, rest.find('\n')));
}

std::uint64_t left_by_groups() {
  const std::string groups = content_of("/proc/self/cgroup");
  std::uint64_t least = UINT64_MAX;
  const auto descend = [&](std::filesystem::path folder, const char* root, const char* limit,
                           const char* used, const char* file_pages, const char* shared_pages) {
    for (;; folder = folder.parent_path()) {
      const std::string here = std::string(root) + folder.string();
      const auto left =
          left_in(here + limit, here + used, here + "/memory.stat", file_pages, shared_pages);
      least = std::min(least, left.value_or(UINT64_MAX));
      if (folder.empty() || folder == folder.parent_path()) {
        return;
      }
    }
  };
  if (const auto own = group_of(groups, "0::")) {
    descend(*own, kGroups, "/memory.max", "/memory.current", "\nfile ", "\nshmem ");
  }
  if (const auto own = group_of(groups, ":memory:")) {
    const std::string root = std::string(kGroups) + "/memory";
    descend(*own, root.c_str(), "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_cache ",
            "total_shmem ");
  }
  return least;
}

}  // namespace

std::uint64_t usable_memory_of_machine() {
  const std::optional<std::uint64_t> kib = field(content_of("/proc/meminfo"), "MemAvailable:");
  return kib ? *kib * 1024 : UINT64_MAX;
}

std::uint64_t usable_memory() {
  return std::min(usable_memory_of_machine(), left_by_groups());
}

}  // namespace mayfly
