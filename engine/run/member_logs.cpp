#include "engine/run/member_logs.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

/// `text` without its first `count` lines.
std::string_view without_lines(std::string_view text, std::uint64_t count) {
  for (; count > 0 && !text.empty(); --count) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text;
}

/// The last line of a file with its end of line; empty if there is none.
std::string last_ended_line(const std::string& path) {
  const Result<std::string> text = read_text_file(path, MemberLogs::kBytesMax * 2);
  if (!text.ok() || !text.value().ends_with('\n')) {
    return {};
  }
  const std::size_t before = text.value().rfind('\n', text.value().size() - 2);
  return text.value().substr(before == std::string::npos ? 0 : before + 1);
}

}  // namespace

MemberLogs::Written& MemberLogs::file_of(MemberId member, const std::string& path) {
  const auto [place, is_new] = written_.try_emplace(member);
  if (is_new) {
    keep_newest_logs(run_dir_, "member-", kFilesMax - 1);
    std::error_code absent;
    const std::uintmax_t size = fs::file_size(path, absent);
    place->second.bytes = absent ? 0 : size;  // from an earlier coordinator
    place->second.last_line = last_ended_line(path);
  }
  return place->second;
}

void MemberLogs::append(MemberId member, const LogRecord& record) {
  const std::string path = fmt::format("{}/logs/member-{}.log", run_dir_, value(member));
  Written& written = file_of(member, path);
  const bool goes_on = written.next > 0;
  const std::uint64_t known = written.next > record.first ? written.next - record.first : 0;
  std::string_view lines = without_lines(record.lines, known);
  if (!goes_on && !written.last_line.empty()) {  // lines contain their time, so none occurs twice
    const std::size_t again = lines.find(written.last_line);
    lines.remove_prefix(again == std::string_view::npos ? 0 : again + written.last_line.size());
  }
  const std::uint64_t missing =
      goes_on && record.first > written.next ? record.first - written.next : 0;
  const auto count = std::count(record.lines.begin(), record.lines.end(), '\n');
  written.next = std::max(written.next, record.first + static_cast<std::uint64_t>(count));
  if (lines.empty() || written.bytes >= kBytesMax) {
    return;
  }
  std::string text = missing > 0 ? fmt::format("({} lines are missing)\n", missing) : "";
  text += lines;
  written.bytes += text.size();
  if (written.bytes >= kBytesMax) {
    text += "(the file is full; later lines are on the member's own host only)\n";
  }
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

void keep_newest_logs(const std::string& run_dir, std::string_view prefix, std::size_t keep) {
  const fs::path folder = fs::path(run_dir) / "logs";
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code ignored;
  for (const std::string& name : names_in(folder.string())) {
    if (name.starts_with(prefix)) {
      files.emplace_back(fs::last_write_time(folder / name, ignored), folder / name);
    }
  }
  std::sort(files.begin(), files.end(), std::greater<>());
  for (std::size_t i = keep; i < files.size(); ++i) {
    fs::remove(files[i].second, ignored);
  }
}

}  // namespace mayfly::engine
