#include "engine/run/record_json.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {
namespace {

// Files of records have a line per step, for many millions of steps, so only a part is in memory.
constexpr std::size_t kPartBytes = std::size_t{1} << 20;
constexpr std::size_t kLineBytesMax = std::size_t{64} << 20;

/// Appends the next bytes to a part of the file that begins at `begin`.
Result<void> read_on(const ReadableFile& file, const std::string& path, std::size_t begin,
                     std::string& part) {
  const std::size_t before = part.size();
  part.resize(before + std::min(kPartBytes, file.size - begin - before));
  ssize_t got = 0;
  do {
    got = ::pread(file.fd.get(), part.data() + before, part.size() - before,
                  static_cast<off_t>(begin + before));
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return file_error("cannot read", path);
  }
  if (got == 0) {
    return Error{Errc::kCorrupt, path + " became shorter while it was read"};
  }
  part.resize(before + static_cast<std::size_t>(got));
  return {};
}

/// The number of lines that end before this byte of the file.
Result<std::size_t> lines_before(const ReadableFile& file, const std::string& path,
                                 std::size_t end) {
  std::size_t lines = 0;
  std::string part;
  for (std::size_t begin = 0; begin < end; begin += part.size()) {
    part.clear();
    TRY(read_on(file, path, begin, part));
    const std::string_view counted = std::string_view(part).substr(0, end - begin);
    lines += static_cast<std::size_t>(std::ranges::count(counted, '\n'));
  }
  return lines;
}

/// Boost.JSON itself writes 0.5 as 5E-1, and numbers that are not finite as invalid JSON.
std::string number_text(double number) {
  return std::isfinite(number) ? shortest_text(number) : "null";
}

/// The enumerator with this name, from the first to `last`.
template <typename E>
E named(const json::value& value, E last, auto name_of_one) {
  const std::string name(value.as_string());
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name == name_of_one(static_cast<E>(i))) {
      return static_cast<E>(i);
    }
  }
  throw std::invalid_argument("'" + name + "' has no meaning here");
}

}  // namespace

std::string json_text(const json::value& value) {
  std::string out;
  if (const json::object* object = value.if_object()) {
    for (const auto& [name, field] : *object) {
      out += out.empty() ? "{" : ", ";
      out += json::serialize(json::string(name)) + ": " + json_text(field);
    }
    return out.empty() ? "{}" : out + "}";
  }
  if (const json::array* array = value.if_array()) {
    for (const json::value& element : *array) {
      out += (out.empty() ? "[" : ", ") + json_text(element);
    }
    return out.empty() ? "[]" : out + "]";
  }
  if (const json::string* text = value.if_string(); text != nullptr && !is_utf8(*text)) {
    return json::serialize(json::string(printable(std::string(*text))));  // JSON must be UTF-8
  }
  return value.is_double() ? number_text(value.get_double()) : json::serialize(value);
}

double rounded(double number, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(number * scale) / scale;
}

double number_or(const json::object& object, json::string_view name, double otherwise) {
  const json::value* field = object.if_contains(name);
  return field != nullptr && field->is_number() ? field->to_number<double>() : otherwise;
}

Result<void> with_object(const std::string& complaint, std::string_view text,
                         const std::function<void(const json::object&)>& use) {
  try {
    use(json::parse(json::string_view(text.data(), text.size())).as_object());
    return {};
  } catch (const std::exception& failure) {  // all exceptions about invalid text end here
    return Error{Errc::kCorrupt, complaint + ": " + reason_of(failure)};
  }
}

Result<void> for_each_line(const std::string& path, std::size_t offset,
                           const std::function<void(const json::object&)>& use) {
  TRY_ASSIGN(const ReadableFile file, open_to_read(path));
  // From the byte before `offset` on: the line that it ends, or that goes on there, is left out.
  std::size_t begin = std::min(offset, file.size);  // of the next line, in the file
  bool is_before = begin > 0;
  begin = is_before ? begin - 1 : begin;
  std::string part;  // of the file, from `begin` on
  while (begin + part.size() < file.size) {
    TRY(read_on(file, path, begin, part));
    std::size_t used = 0;
    for (std::size_t end = 0; (end = part.find('\n', used)) != std::string::npos; used = end + 1) {
      const std::string_view line = std::string_view(part).substr(used, end - used);
      if (std::exchange(is_before, false)) {
        continue;
      }
      if (const Result<void> read = with_object("", line, use); !read.ok()) {
        TRY_ASSIGN(const std::size_t before, lines_before(file, path, begin + used));
        return Error{read.error().code, path + " line " + std::to_string(before + 1) +
                                            " is not a record of a run" + read.error().detail};
      }
    }
    part.erase(0, used);
    begin += used;
    if (part.size() > kLineBytesMax) {
      return Error{Errc::kCorrupt, path + " has a line of more than 64 MiB"};
    }
  }
  return {};
}

json::value value_of(const std::map<std::uint64_t, std::uint64_t>& counts) {
  json::object object;
  for (const auto& [key, count] : counts) {
    object[std::to_string(key)] = count;
  }
  return object;
}

void read_value(const json::value& value, std::string& text) {
  text = std::string(value.as_string());
}

void read_value(const json::value& value, double& number) {
  number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.to_number<double>();
}

void read_value(const json::value& value, Digest& digest) {
  const std::string digits(value.as_string());
  const std::optional<Digest> found = digest_in(digits);
  if (!found) {
    throw std::invalid_argument("'" + digits + "' is not a digest");
  }
  digest = *found;
}

void read_value(const json::value& value, elastic::ChangeCause& cause) {
  cause = named(value, elastic::ChangeCause::kFinish,
                [](elastic::ChangeCause one) { return elastic::name_of(one); });
}

void read_value(const json::value& value, elastic::Outcome& outcome) {
  outcome = named(value, elastic::Outcome::kTooFewWorkers,
                  [](elastic::Outcome one) { return to_text(one); });
}

void read_value(const json::value& value, std::map<std::uint64_t, std::uint64_t>& counts) {
  for (const auto& [key, count] : value.as_object()) {
    counts[std::stoull(std::string(key))] = count.to_number<std::uint64_t>();
  }
}

}  // namespace mayfly::engine
