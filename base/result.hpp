#pragma once

// Errors that will happen (a peer is lost, a file is torn, an input is wrong) are values. They
// carry what to do about it (the code), a text for people, and who caused it (for the membership
// layer).

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "base/ids.hpp"

namespace mayfly {

enum class Errc {
  kInvalidInput,  ///< the caller's data is wrong; trying again will not help
  kNotFound,      ///< something that was named does not exist
  kCorrupt,       ///< stored or received bytes do not mean what they should
  kIo,            ///< the operating system refused: disk full, permission, ...
  kPeerLost,      ///< another member stopped answering; `culprit` says which, if known
  kUnreachable,   ///< packets to another member's host stay unanswered; `culprit` says whose
  kAborted,       ///< we were told to stop this operation; nothing is wrong with it
  kDeadline,      ///< the deadline passed first; `culprit` says who was waited for, if known
  kRefused,       ///< the other side understood and said no; the text says why
  kUnsupported,   ///< this build or this machine cannot do it
  kDiverged,      ///< the numbers went to infinity or members disagree about them
};

/// A short fixed name for logs and records, for example "peer_lost".
[[nodiscard]] const char* to_string(Errc code);

struct [[nodiscard]] Error {
  Errc code;
  std::string detail;                 ///< for people: what, where, what to do
  std::optional<MemberId> culprit{};  ///< for the membership layer
};

/// Either a value or an Error. Asking for the one that is not there is a programming error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] T& value() & {
    ENSURE(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    ENSURE(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    ENSURE(ok(), "value() of a failed Result");
    return std::get<0>(std::move(state_));
  }
  [[nodiscard]] const Error& error() const& {
    ENSURE(!ok(), "error() of a successful Result");
    return std::get<1>(state_);
  }
  [[nodiscard]] Error&& error() && {
    ENSURE(!ok(), "error() of a successful Result");
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  [[nodiscard]] const Error& error() const& {
    ENSURE(!ok(), "error() of a successful Result");
    return *error_;
  }
  [[nodiscard]] Error&& error() && {
    ENSURE(!ok(), "error() of a successful Result");
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

/// Evaluates an expression that is a Result; if it failed, the function that this stands in returns
/// the error, as a Result of its own type or whatever an Error converts to.
#define TRY(...)                                                 \
  do {                                                           \
    if (auto tried_result = (__VA_ARGS__); !tried_result.ok()) { \
      return std::move(tried_result).error();                    \
    }                                                            \
  } while (false)

}  // namespace mayfly
