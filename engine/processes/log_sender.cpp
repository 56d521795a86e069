#include "engine/processes/log_sender.hpp"

#include <pthread.h>

#include "base/log.hpp"
#include "base/time.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kInterval = seconds(1);

}  // namespace

LogSender::LogSender(elastic::MemberClient& client) : client_(client), thread_([this] { run(); }) {}

LogSender::~LogSender() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  while (send_some()) {
  }
}

void LogSender::run() {
  pthread_setname_np(pthread_self(), "log");
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return stopping_; })) {
    lock.unlock();
    send_some();
    lock.lock();
  }
}

bool LogSender::send_some() {
  log::KeptLines kept = log::take_kept_lines(LogRecord::kBytesMax);
  if (kept.text.empty()) {
    return false;
  }
  client_.send_report(encode_record(LogRecord{kept.first, std::move(kept.text)}));
  return true;
}

}  // namespace mayfly::engine
