#include "cloud_hooks/notice/notice_watcher.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/low_latency_thread.hpp"
#include "base/time.hpp"
#include "cloud_hooks/http/http_client.hpp"
#include "cloud_hooks/notice/notice_sources.hpp"

namespace mayfly::cloud_hooks {

class NoticeWatcher::Impl {
 public:
  Impl(const NoticeSetting& setting, std::function<void(const std::string&)> on_leave)
      : on_leave_(std::move(on_leave)),
        source_(make_notice_source(
            setting, client_, [] { return static_cast<std::int64_t>(wall_clock_seconds()); },
            environment_variable)) {
    if (source_ != nullptr) {
      thread_ = std::thread([this] { run(); });
    }
  }

  void has_left() {
    if (!has_rung_.exchange(false)) {
      return;
    }
    thread_.join();  // it ends after on_leave; from here on this thread uses its members
    if (Result<void> told = source_->acknowledge(last_); !told.ok()) {
      log::warning(source_->name() + " was not told that we have left: " + told.error().detail);
    } else if (!last_.event_id.empty()) {
      log::info(source_->name() + " was told that we have left");
    }
  }

  ~Impl() {
    client_.abort();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  void run() {
    become_low_latency_thread("notices");
    Duration wait{};
    while (client_.pause(wait)) {
      wait = std::max(look(), Duration(0));
      if (const std::optional<Instant> leave_at = watch_.leave_at()) {
        if (monotonic_now() >= *leave_at) {
          has_rung_ = true;
          on_leave_(watch_.reason());
          return;
        }
        wait = std::min(wait, *leave_at - monotonic_now());
      }
    }
  }

  /// Returns how long to wait for the next one.
  Duration look() {
    constexpr Duration kAfterFailure = seconds(5);
    // While there is a notice, the thread must act at its time, so a source must not block.
    const Result<Announced> announced = source_->look(!watch_.leave_at().has_value());
    if (announced.ok()) {
      if (std::exchange(failing_, false)) {
        log::info("notices can be read again from " + source_->name());
      }
      if (const std::optional<std::string> news =
              watch_.heard(monotonic_now(), announced.value())) {
        log::warning(*news);
      }
      last_ = announced.value().value_or(last_);
      return source_->pause();
    }
    if (announced.error().code != Errc::kAborted && !std::exchange(failing_, true)) {
      log::warning("no notices from " + source_->name() + ": " + announced.error().detail);
    }
    return kAfterFailure;
  }

  const std::function<void(const std::string&)> on_leave_;
  HttpClient client_;
  const std::unique_ptr<NoticeSource> source_;
  NoticeWatch watch_;     // of the thread
  bool failing_ = false;  // of the thread
  Notice last_;           // of the thread until on_leave was called
  std::atomic<bool> has_rung_ = false;
  std::thread thread_;  // last: it uses the rest
};

NoticeWatcher::NoticeWatcher(const NoticeSetting& setting,
                             std::function<void(const std::string&)> on_leave)
    : impl_(std::make_unique<Impl>(setting, std::move(on_leave))) {}

NoticeWatcher::~NoticeWatcher() = default;

void NoticeWatcher::has_left() {
  impl_->has_left();
}

}  // namespace mayfly::cloud_hooks
