#include "base/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <deque>
#include <memory>
#include <mutex>

namespace mayfly::log {
namespace {

constexpr const char* kPattern = "%H:%M:%S.%e %n %^%l%$ %v";

class KeepingSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit KeepingSink(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  KeptLines take(std::size_t bytes_max) {
    const std::lock_guard lock(mutex_);
    KeptLines taken{first_, {}};
    while (!lines_.empty() &&
           (taken.text.empty() || taken.text.size() + lines_.front().size() <= bytes_max)) {
      taken.text += lines_.front().substr(0, bytes_max);
      forget_first();
    }
    return taken;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    lines_.emplace_back(formatted.data(), formatted.size());
    bytes_ += formatted.size();
    while (bytes_ > bytes_max_) {
      forget_first();
    }
  }
  void flush_() override {}

 private:
  void forget_first() {
    bytes_ -= lines_.front().size();
    lines_.pop_front();
    ++first_;
  }

  const std::size_t bytes_max_;
  std::deque<std::string> lines_;
  std::size_t bytes_ = 0;
  std::uint64_t first_ = 0;  // number of lines_.front()
};

std::shared_ptr<KeepingSink> kept_lines;  // null = none; set before other threads log

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::shared_ptr<spdlog::logger> make_logger(std::string_view who, const std::string& path,
                                            Level stderr_level) {
  auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  console->set_level(level_of(stderr_level));
  auto logger = std::make_shared<spdlog::logger>(std::string(who), console);
  if (!path.empty()) {
    logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  }
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::debug);
  logger->set_pattern(kPattern);
  return logger;
}

/// Not spdlog's default logger: a program of the user's own that is linked to libmayfly may use
/// that one. Never destroyed, because threads may log until the process has ended. Before open() it
/// writes to standard error only. Modules (base/module_file) would have another one; they do not
/// log.
std::shared_ptr<spdlog::logger>& own_logger() {
  static auto* const logger =
      new std::shared_ptr<spdlog::logger>(make_logger("mayfly", "", Level::kInfo));
  return *logger;
}

}  // namespace

void open(std::string_view who, const std::string& path, Level stderr_level) {
  own_logger() = make_logger(who, path, stderr_level);
}

void keep_lines(std::size_t bytes_max) {
  kept_lines = std::make_shared<KeepingSink>(bytes_max);
  kept_lines->set_level(spdlog::level::info);
  kept_lines->set_pattern(kPattern);
  own_logger()->sinks().push_back(kept_lines);
}

KeptLines take_kept_lines(std::size_t bytes_max) {
  return kept_lines == nullptr ? KeptLines{} : kept_lines->take(bytes_max);
}

void debug(std::string_view text) {
  own_logger()->debug("{}", text);
}
void info(std::string_view text) {
  own_logger()->info("{}", text);
}
void warning(std::string_view text) {
  own_logger()->warn("{}", text);
}
void error(std::string_view text) {
  own_logger()->error("{}", text);
}

}  // namespace mayfly::log
