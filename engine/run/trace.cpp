#include "engine/run/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kFlushInterval = seconds(1);
constexpr std::size_t kPartBytesMax = std::size_t{1} << 30;

double microseconds(std::int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

void append_event(std::string& out, const TraceEvent& event, std::uint64_t process,
                  std::size_t thread) {
  fmt::format_to(
      std::back_inserter(out),
      R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"step":{})",
      event.name, process, thread, microseconds(event.begin.ns),
      microseconds((event.end - event.begin).count()), event.step);
  if (event.argument.key != nullptr) {
    fmt::format_to(std::back_inserter(out), R"(,"{}":{})", event.argument.key,
                   event.argument.value);
  }
  out += "}},\n";
}

std::string metadata(const char* kind, std::uint64_t process, std::size_t thread,
                     const std::string& value) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{{}}}}},)", kind, process,
                     thread, value) +
         "\n";
}

/// Appends the complete events of a worker's file, without the separators between them.
void append_events_of(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return;  // torn
    }
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const std::size_t brace = line.rfind('}');
    if (line.starts_with('{') && brace != std::string_view::npos && brace + 2 >= line.size()) {
      out += out.empty() ? "[\n" : ",\n";
      out += line.substr(0, brace + 1);
    }
  }
}

}  // namespace

void TraceLane::span(const char* name, Instant begin, Instant end, std::uint64_t step,
                     TraceArgument argument) {
  const std::size_t place = written_.load(std::memory_order_relaxed);
  if (place - drained_.load(std::memory_order_acquire) == kCapacity) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ring_[place % kCapacity] = {name, begin, std::max(begin, end), step, argument};
  written_.store(place + 1, std::memory_order_release);
}

void TraceLane::drain(std::vector<TraceEvent>& events) {
  const std::size_t end = written_.load(std::memory_order_acquire);
  std::size_t place = drained_.load(std::memory_order_relaxed);
  for (; place != end; ++place) {
    events.push_back(ring_[place % kCapacity]);
  }
  drained_.store(place, std::memory_order_release);
}

bool TraceLane::half_full() const {
  return written_.load(std::memory_order_relaxed) - drained_.load(std::memory_order_relaxed) >=
         kCapacity / 2;
}

Trace::~Trace() {
  close();
}

void Trace::close() {
  flush();
  std::uint64_t dropped = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const TraceLane& lane : lanes_) {
      dropped += lane.dropped();
    }
  }
  if (dropped > 0) {
    log::warning(fmt::format("the trace lacks {} events: a step has more than fit", dropped));
  }
  if (file_ != nullptr && !failed_) {  // a last element without a comma makes it strict JSON
    write(fmt::format(R"({{"name":"end of trace","ph":"M","pid":{},"args":{{"dropped":{}}}}})",
                      member_, dropped) +
          "\n]\n");
  }
  file_.reset();
}

TraceLane* Trace::lane(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return &lanes_.emplace_back(name, recording_);
}

Result<void> Trace::open(const std::string& folder, MemberId member) {
  if (file_ != nullptr && member_ == value(member)) {
    return {};
  }
  close();
  TRY(make_directories(folder));
  member_ = value(member);
  introduced_ = 0;
  const std::string path = fmt::format("{}/member-{}.json", folder, member_);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  TRY_ASSIGN(std::unique_ptr<LineFile> file, LineFile::open(path, LineFile::Content::kBinary));
  file_ = std::move(file);
  write("[\n" +
        metadata("process_name", member_, 0, fmt::format(R"("name":"member {}")", member_)) +
        metadata("process_sort_index", member_, 0, fmt::format(R"("sort_index":{})", member_)));
  return {};
}

void Trace::at_step(std::uint64_t step_of_view) {
  const bool recorded = recording_.load(std::memory_order_relaxed);
  const bool records = !failed_ && step_of_view >= window_.first && step_of_view < window_.last;
  recording_.store(records, std::memory_order_relaxed);
  const bool ends = recorded && !records;
  if (ends || (records && (monotonic_now() - flushed_ >= kFlushInterval || any_half_full()))) {
    flush();
  }
}

bool Trace::any_half_full() {
  const std::lock_guard lock(mutex_);
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const TraceLane& lane) { return lane.half_full(); });
}

std::string Trace::header(const TraceLane& lane, std::size_t number) const {
  return metadata("thread_name", member_, number, fmt::format(R"("name":"{}")", lane.name())) +
         metadata("thread_sort_index", member_, number, fmt::format(R"("sort_index":{})", number));
}

void Trace::flush() {
  if (file_ == nullptr || failed_) {
    return;
  }
  flushed_ = monotonic_now();
  std::string lines;
  std::vector<TraceEvent> events;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (i >= introduced_) {
        lines += header(lanes_[i], i);
      }
      events.clear();
      lanes_[i].drain(events);
      for (const TraceEvent& event : events) {
        append_event(lines, event, member_, i);
      }
    }
    introduced_ = lanes_.size();
  }
  write(lines);
}

void Trace::write(const std::string& lines) {
  if (lines.empty()) {
    return;
  }
  if (Result<void> written = file_->append(lines); !written.ok()) {
    log::warning(written.error().detail + "; the trace ends here");
    failed_ = true;
  }
}

Result<void> merge_traces(const std::string& folder, const std::string& file) {
  std::error_code failure;
  if (std::filesystem::exists(file, failure) && !std::filesystem::is_regular_file(file, failure)) {
    return Error{Errc::kInvalidInput, file + " is not a regular file; the parts are in " + folder};
  }
  std::vector<std::string> parts = names_in(folder);
  std::erase_if(parts, [](const std::string& name) { return !name.ends_with(".json"); });
  if (parts.empty()) {
    return Error{Errc::kNotFound, "no worker left a trace in " + folder};
  }
  std::string merged;
  for (const std::string& part : parts) {
    TRY_ASSIGN(const std::string text, read_text_file(folder + "/" + part, kPartBytesMax));
    append_events_of(text, merged);
  }
  return write_file_atomic(file, merged.empty() ? "[]\n" : merged + "\n]\n");
}

}  // namespace mayfly::engine
