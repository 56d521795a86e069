#pragma once

// A thread that reads notices and calls back once when it is time to leave.

#include <functional>
#include <memory>
#include <string>

#include "cloud_hooks/notice/notice.hpp"

namespace mayfly::cloud_hooks {

class NoticeWatcher {
 public:
  /// Starts the thread; does nothing for Kind::kNone. `on_leave` is called on that thread, at most
  /// once, with the reason. A source that cannot be read is logged once and tried again.
  NoticeWatcher(const NoticeSetting& setting, std::function<void(const std::string&)> on_leave);
  /// Ends the thread, even if a request hangs.
  ~NoticeWatcher();

  /// The worker has left and does not need the machine any more: a cloud that waits for that
  /// (Azure) is told. Takes some seconds at most; a failure is logged. Does nothing if on_leave was
  /// not called, or on a second call. One thread, and not from on_leave.
  void has_left();

  NoticeWatcher(const NoticeWatcher&) = delete;
  NoticeWatcher& operator=(const NoticeWatcher&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mayfly::cloud_hooks
