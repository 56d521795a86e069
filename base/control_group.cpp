#include "base/control_group.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/parse.hpp"

namespace mayfly {
namespace {

constexpr const char* kGroups = "/sys/fs/cgroup";

/// A group and all groups above it, in the file system of their hierarchy.
std::vector<std::string> folders_of(const std::string& root, std::filesystem::path group) {
  std::vector<std::string> folders;
  while (true) {
    folders.push_back(root + group.string());
    if (group.empty() || group == group.parent_path()) {
      return folders;
    }
    group = group.parent_path();
  }
}

/// The group in the line "N:CONTROLLERS:GROUP" of /proc/self/cgroup that belongs to the controller.
std::optional<std::string> own_group(std::string_view controller) {
  const std::string text = content_of_kernel_file("/proc/self/cgroup");
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t begin = line.find(':');
    const std::size_t end = line.find(':', begin + 1);
    if (end == std::string_view::npos) {
      continue;
    }
    const auto controllers = split(line.substr(begin + 1, end - begin - 1), ',');
    const bool is_second_version = controllers.empty() && line.starts_with("0:");
    if (controller.empty() ? is_second_version : std::ranges::count(controllers, controller) > 0) {
      return std::string(line.substr(end + 1));
    }
  }
  return std::nullopt;
}

}  // namespace

std::string content_of_kernel_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

std::vector<std::string> control_groups() {
  const std::optional<std::string> own = own_group("");
  return own ? folders_of(kGroups, *own) : std::vector<std::string>();
}

std::vector<std::string> control_groups(std::string_view controller) {
  const std::optional<std::string> own = own_group(controller);
  return own ? folders_of(std::string(kGroups) + "/" + std::string(controller), *own)
             : std::vector<std::string>();
}

}  // namespace mayfly
