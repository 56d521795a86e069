#pragma once

// Where notices are read: three clouds' metadata servers, or a file.

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

  /// What is announced now. If `may_wait`, and the source can, it answers when something changes,
  /// within a minute. Errors as of HttpSender::send, or kCorrupt.
  [[nodiscard]] virtual Result<Announced> look(bool may_wait) = 0;
  /// This machine has done what `notice` asked for: a cloud that waits for that is told that it
  /// need not. Nothing for others, and for notices that concern others too. Errors as of look().
  [[nodiscard]] virtual Result<void> acknowledge(const Notice& notice) {
    (void)notice;
    return {};
  }
  /// How long to wait until the next look.
  [[nodiscard]] virtual Duration pause() const = 0;
  /// For people.
  [[nodiscard]] virtual std::string name() const = 0;
};

/// Null for Kind::kNone. `sender` must outlive the source; `unix_seconds` is the wall clock;
/// addresses that the setting leaves out are the clouds' own, or those that the environment (`get`)
/// names as for the clouds' own tools.
[[nodiscard]] std::unique_ptr<NoticeSource> make_notice_source(
    const NoticeSetting& setting, HttpSender& sender, std::function<std::int64_t()> unix_seconds,
    const std::function<std::string(const std::string&)>& get);

}  // namespace mayfly::cloud_hooks
