#pragma once

// Sources of notices (the metadata servers of three clouds, or a file), and a thread that reads one
// and calls back once when it is time to leave.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/notice/notice.hpp"

namespace mayfly::cloud_hooks {

/// One thread at a time.
class NoticeSource {
 public:
  virtual ~NoticeSource() = default;

  /// The current notice. If `may_wait` is set and the source supports it, the call returns when the
  /// notice changes, within a minute, and the source may take two minutes to answer; else seconds.
  /// Errors as for HttpSender::send, or kCorrupt.
  [[nodiscard]] virtual Result<Announced> look(bool may_wait) = 0;
  /// This machine is ready for the event of `notice`: asks a cloud that waits for this (Azure) to
  /// start the event. Does nothing for other clouds, nor for events that also concern other
  /// machines. Errors as for look().
  [[nodiscard]] virtual Result<void> acknowledge(const Notice& notice) {
    (void)notice;
    return {};
  }
  /// The waiting time until the next look().
  [[nodiscard]] virtual Duration pause() const = 0;
  /// A readable name of the source.
  [[nodiscard]] virtual std::string name() const = 0;
};

/// Null for Kind::kNone. `sender` must outlive the source; `unix_seconds` is the wall clock; an
/// address that the setting leaves out is read from the environment (`get`), under the names that
/// the clouds' own tools use, or else is the cloud's usual one.
[[nodiscard]] std::unique_ptr<NoticeSource> make_notice_source(
    const NoticeSetting& setting, HttpSender& sender, std::function<std::int64_t()> unix_seconds,
    const std::function<std::string(const std::string&)>& get);

class NoticeWatcher {
 public:
  /// Starts the thread; does nothing for Kind::kNone. `on_leave` is called on that thread, at most
  /// once, with the reason. A source that cannot be read is logged once and tried again.
  NoticeWatcher(const NoticeSetting& setting, std::function<void(const std::string&)> on_leave);
  /// Ends the thread, even if a request hangs.
  ~NoticeWatcher();

  /// The worker has left and does not need the machine any more: informs a cloud that waits for
  /// this (Azure). Takes some seconds at most; a failure is logged. Does nothing if on_leave was
  /// not called, or on a second call. One thread, and not from on_leave.
  void has_left();

  NoticeWatcher(const NoticeWatcher&) = delete;
  NoticeWatcher& operator=(const NoticeWatcher&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mayfly::cloud_hooks
