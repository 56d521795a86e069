#pragma once

// A function that may be replaced while other threads call it.

#include <functional>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace mayfly {

template <typename Signature>
class ReplaceableHandler;

/// For a handler that uses objects which are created after its callers and destroyed before them.
/// Any thread; calls wait for each other. The handler must not call set() or call() of the same
/// object.
template <typename R, typename... Args>
class ReplaceableHandler<R(Args...)> {
 public:
  using Function = std::function<R(Args...)>;
  using Answer = std::conditional_t<std::is_void_v<R>, bool, std::optional<R>>;

  /// `handler` is called from now on; null: none. Returns when the previous handler is not running
  /// any more, so that objects that it uses may be destroyed.
  void set(Function handler) {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
  }

  /// The result of the handler (true if it returns void); nothing (false) if there is no handler.
  Answer call(Args... args) {
    const std::lock_guard lock(mutex_);
    if (!handler_) {
      return {};
    }
    if constexpr (std::is_void_v<R>) {
      handler_(std::forward<Args>(args)...);
      return true;
    } else {
      return handler_(std::forward<Args>(args)...);
    }
  }

 private:
  std::mutex mutex_;
  Function handler_;
};

}  // namespace mayfly
