#pragma once

// A thread that reads notices and says once when it is time to leave.

#include <functional>
#include <memory>
#include <string>

#include "cloud_hooks/notice/notice.hpp"

namespace mayfly::cloud_hooks {

class NoticeWatcher {
 public:
  /// Starts the thread; without one, and silently, for Kind::kNone. `on_leave` is called on it, at
  /// most once, with the reason. Sources that cannot be read are logged once and tried on.
  NoticeWatcher(const NoticeSetting& setting, std::function<void(const std::string&)> on_leave);
  /// Ends the thread, also out of a request that hangs.
  ~NoticeWatcher();

  /// What on_leave asked for is done, and nothing here needs the machine any more: a cloud that
  /// waits for that (Azure) is told. Takes some seconds at most; a failure is logged. Nothing if
  /// on_leave was not called, or the second time. One thread, and not from on_leave.
  void has_left();

  NoticeWatcher(const NoticeWatcher&) = delete;
  NoticeWatcher& operator=(const NoticeWatcher&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mayfly::cloud_hooks
