#include "engine/run/member_logs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

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

void make_room(const std::string& folder, std::size_t keep) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with("member-")) {
      files.emplace_back(entry.last_write_time(ignored), entry.path());
    }
  }
  if (files.size() > keep) {
    std::sort(files.begin(), files.end());
    for (std::size_t i = 0; i < files.size() - keep; ++i) {
      fs::remove(files[i].second, ignored);
    }
  }
}

}  // namespace

MemberLogs::Told& MemberLogs::file_of(MemberId member, const std::string& path) {
  const auto [place, is_new] = told_.try_emplace(member);
  if (is_new) {
    make_room(folder_, kFilesMax - 1);
    std::error_code absent;
    const std::uintmax_t size = fs::file_size(path, absent);
    place->second.bytes = absent ? 0 : size;  // of a coordinator before this one
  }
  return place->second;
}

void MemberLogs::append(MemberId member, const LogRecord& record) {
  const std::string path = fmt::format("{}/member-{}.log", folder_, value(member));
  Told& told = file_of(member, path);
  const bool goes_on = told.next > 0;
  const std::uint64_t known = told.next > record.first ? told.next - record.first : 0;
  const std::string_view lines = without_lines(record.lines, known);
  if (lines.empty() || told.bytes >= kBytesMax) {
    return;
  }
  std::string text;
  if (goes_on && record.first > told.next) {
    text = fmt::format("({} lines are missing)\n", record.first - told.next);
  }
  text += lines;
  told.next = record.first + static_cast<std::uint64_t>(
                                 std::count(record.lines.begin(), record.lines.end(), '\n'));
  told.bytes += text.size();
  if (told.bytes >= kBytesMax) {
    text += "(the file is full; later lines are on the member's own host only)\n";
  }
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

}  // namespace mayfly::engine
