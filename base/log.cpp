#include "base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace mayfly::log {
namespace {

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void open(std::string_view who, const std::string& path, Level stderr_level) {
  auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  console->set_level(level_of(stderr_level));
  auto logger = std::make_shared<spdlog::logger>(std::string(who), console);
  if (!path.empty()) {
    logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  }
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::debug);
  logger->set_pattern("%H:%M:%S.%e %n %^%l%$ %v");
  spdlog::set_default_logger(std::move(logger));
}

void debug(std::string_view text) {
  spdlog::debug("{}", text);
}
void info(std::string_view text) {
  spdlog::info("{}", text);
}
void warning(std::string_view text) {
  spdlog::warn("{}", text);
}
void error(std::string_view text) {
  spdlog::error("{}", text);
}

}  // namespace mayfly::log
